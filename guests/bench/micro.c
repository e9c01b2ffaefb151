/* One event, very often: what does it cost?
 *
 * micro WHAT COUNT [BYTES]
 *
 *   getppid  a system call with no arguments and no effect
 *   write    BYTES to /dev/null: the kernel does nothing with them, replicas compare them
 *   read     BYTES from /dev/zero: the kernel fills them, replicas copy them
 *   clock    clock_gettime through the vDSO
 *   rdtsc    the instruction
 *
 * Standard output gets a line that every run shares, standard error "ns N", the time of the whole
 * loop. A tenth of the loop runs before the clock starts, so that lazy work is done.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

static char buffer[1 << 20];

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Keeps a value, and what it was worked out from, from being optimised away. */
static inline void keep(uint64_t value)
{
    __asm__ volatile("" : : "r"(value) : "memory");
}

static long loop(const char *what, long count, int fd, size_t bytes)
{
    long bad = 0;

    if (!strcmp(what, "getppid")) {
        for (long i = 0; i < count; i++)
            bad += syscall(SYS_getppid) < 0;
    } else if (!strcmp(what, "write")) {
        for (long i = 0; i < count; i++)
            bad += write(fd, buffer, bytes) != (ssize_t)bytes;
    } else if (!strcmp(what, "read")) {
        for (long i = 0; i < count; i++)
            bad += read(fd, buffer, bytes) != (ssize_t)bytes;
    } else if (!strcmp(what, "clock")) {
        struct timespec t;

        for (long i = 0; i < count; i++) {
            bad += clock_gettime(CLOCK_MONOTONIC, &t) != 0;
            keep((uint64_t)t.tv_nsec);
        }
    } else if (!strcmp(what, "rdtsc")) {
        for (long i = 0; i < count; i++)
            keep(__rdtsc());
    } else {
        bad = -1;
    }
    return bad;
}

int main(int argc, char **argv)
{
    long count = argc > 2 ? atol(argv[2]) : 0;
    size_t bytes = argc > 3 ? strtoul(argv[3], NULL, 10) : 64;
    int reads = argc > 1 && !strcmp(argv[1], "read");
    int fd = open(reads ? "/dev/zero" : "/dev/null", reads ? O_RDONLY : O_WRONLY);

    if (argc < 3 || count < 1 || bytes > sizeof buffer || fd < 0) {
        fprintf(stderr, "usage: %s getppid|write|read|clock|rdtsc COUNT [BYTES]\n", argv[0]);
        return 64;
    }
    memset(buffer, 'x', sizeof buffer);

    long bad = loop(argv[1], count / 10 + 1, fd, bytes);
    uint64_t start = now_ns();
    bad += loop(argv[1], count, fd, bytes);
    uint64_t end = now_ns();

    fprintf(stderr, "ns %llu\n", (unsigned long long)(end - start));
    printf("%s %ld times, %ld bad\n", argv[1], count, bad);
    return bad != 0;
}
