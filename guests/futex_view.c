/* FUTEX_WAKE_OP: the kernel stores to a word of a file with a name that several processes map shared; with an argument to a word
 * of the program's own beside it. */
#include "guest.h"
#include <linux/futex.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    static uint32_t own[2];
    int fd = open("words", O_RDWR | O_CREAT, 0600), status;
    need("file", fd >= 0 && ftruncate(fd, 4096) == 0);
    uint32_t *word = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint32_t *anonymous = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", word != MAP_FAILED && anonymous != MAP_FAILED);
    (void)argv;
    word[0] = 7;
    pid_t child = fork();
    if (child == 0) {
        uint32_t *stored = argc > 1 ? own : word;
        stored[1] = 40;
        long woken = syscall(SYS_futex, anonymous, FUTEX_WAKE_OP, 1, (void *)1, stored + 1, FUTEX_OP(FUTEX_OP_ADD, 2, FUTEX_OP_CMP_EQ, 40));
        check("stored", woken == 0 && stored[1] == 42);
        anonymous[1] = stored[1];
        exit(done());
    }
    check("the child", waitpid(child, &status, 0) == child && status == 0 && anonymous[1] == 42);
    return done();
}
