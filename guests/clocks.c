/* Every clock: reads are in order, through the vDSO and as system calls, and the two agree; resolutions are sane. */
#include "guest.h"
#include <sys/time.h>
#include <sys/times.h>

static int64_t ns(struct timespec t) { return t.tv_sec * 1000000000 + t.tv_nsec; }
static int64_t fast(int c) { struct timespec t; clock_gettime(c, &t); sink(&t, sizeof t); return ns(t); }
static int64_t slow(int c) { struct timespec t; syscall(SYS_clock_gettime, c, &t); return ns(t); }

int main(void) {
    static const int id[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, CLOCK_MONOTONIC_RAW,
                             CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME, CLOCK_TAI};
    for (unsigned i = 0; i < sizeof id / sizeof *id; i++) {
        int64_t a = fast(id[i]), b = slow(id[i]), c = fast(id[i]), d = slow(id[i]);
        printf("clock %d ", id[i]);
        check("in order", a <= b && b <= c && c <= d && d - a < 2000000000);
        struct timespec r;
        check("resolution", clock_getres(id[i], &r) == 0 && ns(r) > 0 && ns(r) <= 10000000);
    }
    struct timeval v;
    struct timezone z;
    struct tms t;
    gettimeofday(&v, &z);
    check("gettimeofday near time", labs(v.tv_sec - time(0)) <= 1);
    check("gettimeofday near the clock", labs(v.tv_sec * 1000000000 + v.tv_usec * 1000 - fast(CLOCK_REALTIME)) < 1000000000);
    check("times", times(&t) > 0 && clock() >= 0);
    struct timespec bad;
    check("no such clock", clock_gettime(77, &bad) == -1 && errno == EINVAL);
    return done();
}
