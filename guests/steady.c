/* A short program of about forty events with work between them: what the fault tests kill, stop and flip. */
#include "guest.h"

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 30;
    static uint64_t state[4096];
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < 4096; i++) state[i] = state[i] * 6364136223846793005u + r + i;
        char line[64];
        int n = snprintf(line, sizeof line, "round %d %016lx\n", r, digest(state, sizeof state));
        if (write(1, line, n) != n) return 1;
    }
    return 0;
}
