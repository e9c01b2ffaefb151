/* Much more address space than memory, as sanitizers and collectors reserve it: a few pages of it are used, round by round.
 * Whoever makes this program again may not go through all of it. */
#include "guest.h"

#define PAGES 64

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    size_t n = 16ul << 40;
    unsigned char *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    need("memory", p != MAP_FAILED);
    for (int r = 0; r < rounds; r++) {
        uint64_t sum = 0;
        for (size_t i = 0; i < PAGES; i++) {
            unsigned char *at = p + i * (n / PAGES);
            *at = (unsigned char)(*at * 5 + i + r);
            sum = sum * 31 + *at;
        }
        printf("round %d %016lx\n", r, sum);
        fflush(stdout);
    }
    return 0;
}
