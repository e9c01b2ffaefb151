/* A file of counters that several programs map at once and add to, as the commands of a toolchain do: each has a word of its
 * own, reads those of the others between its calls, and shows what it read. Who made them waits until it sees their last
 * stores in its own mapping. */
#include "guest.h"
#include <spawn.h>
#include <sys/wait.h>

enum { CHILDREN = 3, ROUNDS = 400, BYTES = 16384, APART = 512 };

extern char **environ;

static volatile uint64_t *counters(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    need("open", fd >= 0 && ftruncate(fd, BYTES) == 0);
    void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need("mmap", p != MAP_FAILED);
    close(fd);
    return p;
}

static uint64_t sum(volatile uint64_t *c) {
    uint64_t all = 0;
    for (int i = 0; i < CHILDREN; i++) all += c[i * APART / 8] + c[BYTES / 16 + i];
    return all;
}

static int child(const char *path, int k) {
    volatile uint64_t *c = counters(path);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t seen = sum(c);
        c[k * APART / 8]++;
        c[BYTES / 16 + k] += seen != 0; /* side by side */
        seen += sum(c);
        sink(&seen, sizeof seen);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3) return child(argv[1], atoi(argv[2]));
    const char *path = "counters";
    unlink(path);
    volatile uint64_t *c = counters(path);
    pid_t pid[CHILDREN];
    for (int k = 0; k < CHILDREN; k++) {
        char number[] = { (char)('0' + k), 0 };
        char *args[] = { argv[0], (char *)path, number, NULL };
        need("spawn", posix_spawn(&pid[k], "/proc/self/exe", NULL, NULL, args, environ) == 0);
    }
    for (int tries = 0; tries < 30000; tries++) {
        int all = 1;
        for (int k = 0; k < CHILDREN; k++) all &= c[k * APART / 8] == ROUNDS;
        if (all) break;
        usleep(1000);
    }
    for (int k = 0; k < CHILDREN; k++) check("a child's counter", c[k * APART / 8] == ROUNDS);
    for (int k = 0; k < CHILDREN; k++) {
        int status;
        need("wait", waitpid(pid[k], &status, 0) == pid[k] && status == 0);
        check("the word beside the others'", c[BYTES / 16 + k] >= ROUNDS - 1);
    }
    unlink(path);
    return done();
}
