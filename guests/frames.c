/* frames: a table that is filled, or mapped from a file, and read only much later.
 *
 *   frames memory      anonymous memory, at an address that others know
 *   frames file PATH   a private mapping of a file, which others may change
 *   frames tight PATH  1 GiB of a file, under a limit that leaves no room for as much again
 *
 * Between the two it sleeps, a little at a time, so that a snapshot holds the table; then it says "ready" and reads a
 * byte, and whoever strikes frames does it now. */
#define _GNU_SOURCE
#include "guest.h"
#include <sys/resource.h>

#define AT ((unsigned long *)0x100000000000)
#define BYTES 16384ul

static int tight(const char *path) {
    unsigned long pages = 0, bytes = 1ul << 30;
    FILE *f = fopen("/proc/self/statm", "r");
    need("size", f && fscanf(f, "%lu", &pages) == 1);
    rlim_t all = pages * 4096 + bytes * 3 / 2;
    need("limit", setrlimit(RLIMIT_AS, &(struct rlimit){all, all}) == 0);
    char *p = mmap(0, bytes, PROT_READ, MAP_PRIVATE, open(path, O_RDONLY), 0);
    printf("%s\n", p == MAP_FAILED ? strerror(errno) : "mapped");
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "tight")) return tight(argv[2]);
    const struct timespec pause = {0, 5000000};
    int file = argc > 2, fd = file ? open(argv[2], O_RDONLY) : -1;
    volatile unsigned long *t = mmap(AT, BYTES, file ? PROT_READ : PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_FIXED_NOREPLACE | (file ? 0 : MAP_ANONYMOUS), fd, 0);
    need("mapped", t == AT);
    unsigned long sum = 0, n = BYTES / sizeof *t;
    char c;
    for (unsigned long i = 0; i < n; i++)
        if (file)
            sum += t[i];
        else
            t[i] = i * 0x9e3779b97f4a7c15ul;
    for (int i = 0; i < 40; i++)
        nanosleep(&pause, NULL);
    puts("ready");
    fflush(stdout);
    need("told", read(0, &c, 1) == 1);
    sum = 0;
    for (unsigned long i = 0; i < n; i++)
        sum = sum * 31 + t[i];
    printf("%lx\n", sum);
    fflush(stdout);
    /* Who was repaired in between goes on in code that a repair has not harmed. */
    for (int i = 0; i < 20; i++)
        getppid();
    return 0;
}
