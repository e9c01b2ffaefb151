/* A child that gives up its rights, and then maps files. With an argument: one that it may not open any more. */
#include "guest.h"
#include <grp.h>
#include <sys/wait.h>

static char first(const char *what, int fd, int flags) {
    const char *m = mmap(NULL, 4096, PROT_READ, flags, fd, 0);
    need(what, m != MAP_FAILED);
    return *m;
}

int main(int argc, char **argv) {
    int status, mine = open("mine", O_RDWR | O_CREAT, 0600);
    (void)argv;
    need("file", mine >= 0 && write(mine, "mine", 4) == 4 && fchmod(mine, 0) == 0);
    puts("before");
    fflush(stdout);
    if (fork() == 0) {
        if (getuid() == 0) {
            need("group", setgroups(0, 0) == 0 && setresgid(65534, 65534, 65534) == 0);
            need("user", setresuid(65534, 65534, 65534) == 0);
        }
        if (argc > 1) return first("mine", mine, MAP_PRIVATE) != 'm';
        int self = open("/proc/self/exe", O_RDONLY);
        need("open", self >= 0);
        for (int i = 0; i < 3; i++) {
            check("private", first("private", self, MAP_PRIVATE) == 0x7f);
            check("shared", first("shared", self, MAP_SHARED) == 0x7f);
        }
        check("no file", mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 99, 0) == MAP_FAILED && errno == EBADF);
        return done();
    }
    need("wait", wait(&status) > 0);
    check("child", status == 0);
    return done();
}
