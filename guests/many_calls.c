/* A quarter of a million cheap system calls, or as many as told: the log wraps many times. */
#include "guest.h"

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 250000, same = 0, one = getppid();
    for (long i = 0; i < n; i++) same += syscall(SYS_getppid) == one;
    printf("%ld\n", same);
    return done();
}
