/* Sixteen programs in a row, each with a file mapped shared that the next one reads, and errors on the way. */
#include "guest.h"

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 0;
    int fd = open("counter", O_CREAT | O_RDWR, 0644);
    need("file", fd >= 0 && ftruncate(fd, 4096) == 0);
    int *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need("mapping", at != MAP_FAILED);
    if (*at != n) check("what the last one stored", 0);
    if (n == 16) {
        printf("%d programs\n", *at);
        return done();
    }
    *at = n + 1;
    char next[16], *args[] = {argv[0], next, 0}, *none[] = {0};
    snprintf(next, sizeof next, "%d", n + 1);
    if (n == 3) {
        char big[200000], *many[64];
        memset(big, 'x', sizeof big - 1);
        big[sizeof big - 1] = 0;
        for (int i = 0; i < 63; i++) many[i] = big;
        many[63] = 0;
        check("too long", execve("/proc/self/exe", many, none) == -1 && errno == E2BIG);
        check("directory", execve("/", args, none) == -1 && errno == EACCES);
        check("bad pointer", syscall(SYS_execve, 8L, args, none) == -1 && errno == EFAULT);
        check("bad vector", syscall(SYS_execve, "/proc/self/exe", 8L, none) == -1 && errno == EFAULT);
        int plain = open("plain", O_CREAT | O_WRONLY, 0755);
        need("plain", write(plain, "neither\n", 8) == 8 && close(plain) == 0);
        check("no format", execve("./plain", args, none) == -1 && errno == ENOEXEC);
        int open_one = open("busy", O_CREAT | O_WRONLY, 0755);
        check("being written", execve("./busy", args, none) == -1 && errno == ETXTBSY);
        close(open_one);
        if (fflush(stdout)) return 98;
    }
    execve("/proc/self/exe", args, none);
    return 1;
}
