/* A program that is started with little address space runs, and cannot have much more. */
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

static void child(void) {
    check("a little", mmap(0, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    check("not much", mmap(0, 4ul << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    exit(done());
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) child();
    int status = 0;
    if (fork() == 0) {
        struct rlimit limit;
        need("limit", getrlimit(RLIMIT_AS, &limit) == 0);
        limit.rlim_cur = 128 << 20;
        need("limit", setrlimit(RLIMIT_AS, &limit) == 0);
        execl("/proc/self/exe", "rlimit_spawn", "child", NULL);
        _exit(98);
    }
    wait(&status);
    check("ended well", status == 0);
    return done();
}
