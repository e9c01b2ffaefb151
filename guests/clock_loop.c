/* Many clock reads in a row (100,000, or as many as told), each not before the last; `-t` prints ns per read to stderr. */
#include "guest.h"

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 100000, ok = 1;
    struct timespec first, last, now;
    clock_gettime(CLOCK_MONOTONIC, &first);
    last = first;
    for (long i = 0; i < n; i++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        ok &= now.tv_sec > last.tv_sec || (now.tv_sec == last.tv_sec && now.tv_nsec >= last.tv_nsec);
        last = now;
    }
    if (argc > 2) fprintf(stderr, "%.1f ns\n", ((last.tv_sec - first.tv_sec) * 1e9 + last.tv_nsec - first.tv_nsec) / n);
    check("in order", ok);
    return done();
}
