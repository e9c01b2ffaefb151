/* A program that multiplies: what a core whose multiplier is bad gets wrong.
 *
 * Each round multiplies 1,000 times into rax at two places, which do not matter to the compiler. */
#include "guest.h"

static inline __attribute__((always_inline)) uint64_t times(uint64_t x, uint64_t y) {
    __asm__ volatile("imul %1, %%rax\n\tnop\n\tnop\n\tnop\n\tnop" : "+a"(x) : "r"(y));
    return x;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    uint64_t even = 1, odd = 1;
    for (int r = 0; r < rounds; r++) {
        for (uint64_t i = 0; i < 500; i++) {
            even = times(even + i, 6364136223846793005u);
            odd = times(odd ^ even, 1442695040888963407u);
        }
        char line[80];
        int n = snprintf(line, sizeof line, "round %d %016lx %016lx\n", r, even, odd);
        if (write(1, line, n) != n) return 1;
    }
    return 0;
}
