/* A short program of about forty events with work between them: what the fault tests kill, stop and flip.
 *
 * flip_here is a long nop, executed 4,096 times a round, with a value that matters in rax and one
 * that does not in rdx; 5 bytes long, so that any patcher finds room. */
#include "guest.h"

static inline __attribute__((always_inline)) uint64_t through(uint64_t x) {
    uint64_t dead = 0;
    __asm__ volatile(".globl flip_here\n.type flip_here, @function\nflip_here: .byte 0x0f, 0x1f, 0x44, 0, 0" : "+a"(x), "+d"(dead));
    return x;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 30;
    static uint64_t state[4096];
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < 4096; i++) state[i] = through(state[i] * 6364136223846793005u + r + i);
        char line[64];
        int n = snprintf(line, sizeof line, "round %d %016lx\n", r, digest(state, sizeof state));
        if (write(1, line, n) != n) return 1;
    }
    return 0;
}
