/* A program that multiplies, and then runs itself in its own place: what a core whose multiplier is bad gets wrong in both. */
#include "guest.h"

static inline __attribute__((always_inline)) uint64_t times(uint64_t x, uint64_t y) {
    __asm__ volatile("imul %1, %%rax\n\tnop\n\tnop\n\tnop\n\tnop" : "+a"(x) : "r"(y));
    return x;
}

int main(int argc, char **argv) {
    const char *which = argc > 1 ? "after" : "before";
    uint64_t product = 1;

    for (uint64_t i = 0; i < 500; i++)
        product = times(product + i, 6364136223846793005u);
    printf("%s %016lx\n", which, product);
    fflush(stdout);
    if (argc > 1)
        return 0;
    execl(argv[0], argv[0], "after", (char *)0);
    return 1;
}
