/* Builds a state of MIB mebibytes, then goes round it ROUNDS times: a store to every page, a digest of a part, a line. What
 * tests copy while replicas are killed. */
#include "guest.h"

int main(int argc, char **argv) {
    size_t words = (size_t)(argc > 1 ? atoi(argv[1]) : 1) << 17;
    int rounds = argc > 2 ? atoi(argv[2]) : 10;
    uint64_t *state = malloc(words * sizeof *state), x = 88172645463325252u;
    need("memory", state != NULL);
    for (size_t i = 0; i < words; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17, state[i] = x;
    for (int r = 0; r < rounds; r++) {
        for (size_t i = (size_t)r % 512; i < words; i += 512) state[i] = state[i] * 6364136223846793005u + (uint64_t)r;
        char line[64];
        int n = snprintf(line, sizeof line, "round %d %016lx\n", r, digest(state + words / 2, 65536));
        need("output", write(1, line, (size_t)n) == n);
    }
    return 0;
}
