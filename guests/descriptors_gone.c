/* A program that works for a while with a full table of descriptors, but for a few: what looks at its memory meanwhile
 * needs some too. The limit cannot be raised. */
#include "guest.h"
#include <sys/resource.h>

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 2000, left = argc > 2 ? atoi(argv[2]) : 0, fd, last = 0;
    struct rlimit l = {40, 40};
    need("limit", setrlimit(RLIMIT_NOFILE, &l) == 0);
    while ((fd = open("/dev/null", O_RDONLY)) >= 0) last = fd;
    for (int i = 0; i < left; i++) close(last - i);
    static uint64_t state[4096];
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < 4096; i++) state[i] = state[i] * 6364136223846793005u + r + i;
        if (r % 100 == 0) printf("round %d %016lx\n", r, digest(state, sizeof state)), fflush(stdout);
        if (write(2, "", 0)) return 1;
    }
    return done();
}
