/* Every clock that Linux has, read, compared with itself, slept on and set where nobody may. */
#include "guest.h"
#include <sys/timex.h>
#include <sys/time.h>

int main(void) {
    for (int c = 0; c < 12; c++) {
        struct timespec a, b, r;
        int have = clock_gettime(c, &a) == 0;
        printf("clock %d: %d %d\n", c, have, clock_getres(c, &r) == 0);
        if (!have) continue;
        check("goes forward", clock_gettime(c, &b) == 0 && (b.tv_sec > a.tv_sec || (b.tv_sec == a.tv_sec && b.tv_nsec >= a.tv_nsec)));
        sink(&a, sizeof a), sink(&b, sizeof b);
    }
    struct timespec m, w, t = {0, 2000000};
    clock_gettime(CLOCK_MONOTONIC, &m);
    clock_gettime(CLOCK_REALTIME, &w);
    struct timeval v;
    gettimeofday(&v, 0);
    check("agree", v.tv_sec - w.tv_sec <= 1 && time(0) - w.tv_sec <= 1);
    check("slept", clock_nanosleep(CLOCK_BOOTTIME, 0, &t, 0) == 0 && clock_nanosleep(CLOCK_TAI, 0, &t, 0) == 0);
    check("not on a thread's", clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &t, 0) == EINVAL);
    clockid_t own;
    check("process clock", clock_getcpuclockid(getpid(), &own) == 0 && clock_gettime(own, &t) == 0);
    sink(&t, sizeof t);
    struct timex x = {0};
    check("adjtimex read", adjtimex(&x) >= 0);
    sink(&x, sizeof x);
    check("not settable", clock_settime(CLOCK_MONOTONIC, &m) == -1 && errno == EINVAL);
    struct timezone z;
    check("zone", syscall(SYS_gettimeofday, &v, &z) == 0);
    return done();
}
