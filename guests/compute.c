/* Says that it begins, then computes for about the milliseconds given without a system call, longer than a replica that
 * hangs may take, then says what it computed. */
#include "guest.h"

int main(int argc, char **argv) {
    uint64_t x = 88172645463325252u;
    puts("round 0 begins"), fflush(stdout);
    for (long i = (argc > 1 ? atol(argv[1]) : 10) * 300000; i > 0; i--) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    printf("%016lx\n", x);
    return done();
}
