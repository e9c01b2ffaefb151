/* A process writes to a memory object that another one has mapped, and does not map it itself: by each call that writes, at a place of
 * its own and at the end, in its turn and with bytes that lie in such memory; then a process that maps it, and a program. */
#define _GNU_SOURCE
#include "guest.h"
#include <sys/uio.h>
#include <sys/wait.h>

enum { BYTES = 3 * 4096, ROUNDS = 100 };

static int to[2], from[2];
static void *volatile nowhere = (void *)8;

static void tell(int fd, char c) {
    need("tell", write(fd, &c, 1) == 1);
}

__attribute__((noinline)) static char hear(int fd) {
    char c = 0;
    need("hear", read(fd, &c, 1) == 1);
    return c;
}

/* Says what it sees, each time that it is asked. */
static void reader(int fd) {
    const unsigned char *at = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    need("map", at != MAP_FAILED);
    tell(from[1], 'm');
    while (hear(to[0]) == 'l') {
        uint64_t d = digest(at, BYTES);
        need("seen", write(from[1], &d, sizeof d) == sizeof d);
    }
    _exit(0);
}

__attribute__((noinline)) static void seen(const char *what) {
    uint64_t d;
    tell(to[1], 'l');
    need("seen", read(from[0], &d, sizeof d) == sizeof d);
    printf("%s: %016llx\n", what, (unsigned long long)d);
}

static void all_calls(int fd) {
    char some[5000];
    for (unsigned i = 0; i < sizeof some; i++) some[i] = (char)(i * 7);
    struct iovec v[3] = {{some, 10}, {some + 100, 0}, {some + 200, 4100}};
    check("write", write(fd, some, sizeof some) == sizeof some);
    seen("written");
    check("write on", write(fd, some + 1, 1000) == 1000 && lseek(fd, 0, SEEK_CUR) == 6000);
    seen("written on");
    check("pwrite", pwrite(fd, some + 3, 77, 4090) == 77);
    seen("at a place");
    check("writev", writev(fd, v, 3) == 4110);
    seen("a vector");
    check("pwritev", pwritev(fd, v, 3, 1) == 4110);
    seen("a vector at a place");
    check("unreadable", pwrite(fd, nowhere, 10, 0) == -1 && errno == EFAULT);
    check("nothing", pwrite(fd, some, 0, 0) == 0);
    check("the same length", ftruncate(fd, BYTES) == 0);
    seen("nothing more");
    for (int i = 0; i < ROUNDS; i++) {
        need("round", pwrite(fd, some + i, 40, 100 * i) == 40);
        if (i % 25 == 0) seen("round");
    }
    check("append", fcntl(fd, F_SETFL, O_APPEND) == 0 && fcntl(fd, F_SETFL, 0) == 0);
}

/* This one has mapped it as well, and writes what it reads there. */
static void of_itself(int fd) {
    char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need("map", at != MAP_FAILED);
    check("of itself", pwrite(fd, at + 100, 3000, 4096) == 3000);
    at[0] = 'y';
    printf("here: %016llx\n", (unsigned long long)digest(at, BYTES));
    seen("there");
    munmap(at, BYTES);
}

int main(int argc, char **argv) {
    int status;
    if (argc == 2) {
        int fd = atoi(argv[1]);
        return !(pwrite(fd, "a program", 9, 5000) == 9);
    }
    int fd = memfd_create("written", 0);
    need("object", fd >= 0 && ftruncate(fd, BYTES) == 0 && pipe(to) == 0 && pipe(from) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) reader(fd);
    hear(from[0]);
    all_calls(fd);
    of_itself(fd);
    fflush(stdout);
    pid_t program = fork();
    if (program == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", fd);
        execl("/proc/self/exe", argv[0], number, (char *)NULL);
        _exit(9);
    }
    need("wait", waitpid(program, &status, 0) == program);
    printf("program: %x\n", status);
    seen("by a program");
    tell(to[1], 'e');
    need("wait", waitpid(child, &status, 0) == child);
    return done();
}
