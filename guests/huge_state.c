/* Works for some tenths of a second on 8 MiB in huge pages, so that memory is copied and compared in between (two
 * replicas), and shows a digest of all of it at the end.
 *
 * flip_here is a long nop, executed once a page and round, with a value that matters in rax. */
#include "guest.h"

static inline __attribute__((always_inline)) uint64_t through(uint64_t x) {
    __asm__ volatile(".globl flip_here\n.type flip_here, @function\nflip_here: .byte 0x0f, 0x1f, 0x44, 0, 0" : "+a"(x));
    return x;
}

int main(int argc, char **argv) {
    enum { WORDS = 1 << 20 };
    int rounds = argc > 1 ? atoi(argv[1]) : 120;
    uint64_t *state = mmap(0, WORDS * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need("mmap", state != MAP_FAILED);
    madvise(state, WORDS * 8, MADV_HUGEPAGE);
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < WORDS; i++) {
            uint64_t x = state[i] * 6364136223846793005u + r + i;
            for (int k = 0; k < 4; k++) x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
            state[i] = i % 512 ? x : through(x);
        }
        if (write(1, ".", 1) != 1) return 1;
    }
    printf("%016lx\n", digest(state, WORDS * 8));
    return 0;
}
