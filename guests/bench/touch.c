/* The microbenchmark of Döbel and Härtig 2013, Table 1: take a region, then read and write one
 * word of every 4 KiB page of it, in order.
 *
 * touch MIB plain|huge     huge: ask for huge pages, as a native program would have to
 *
 * Standard output gets a sum that every run shares, standard error "ns N".
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv)
{
    size_t bytes = argc == 3 ? strtoul(argv[1], NULL, 10) << 20 : 0;
    uint64_t start = now_ns(), sum = 0;

    if (bytes == 0) {
        fprintf(stderr, "usage: %s MIB plain|huge\n", argv[0]);
        return 64;
    }
    volatile uint64_t *region =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED)
        return 1;
    if (!strcmp(argv[2], "huge") && madvise((void *)region, bytes, MADV_HUGEPAGE) != 0)
        return 2;
    for (size_t word = 0; word < bytes / 8; word += 512) {
        sum += region[word];
        region[word] = word;
    }
    fprintf(stderr, "ns %llu\n", (unsigned long long)(now_ns() - start));

    for (size_t word = 0; word < bytes / 8; word += 512)
        sum = sum * 31 + region[word];
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
