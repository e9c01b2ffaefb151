/* Sleeping: nanosleep, usleep, clock_nanosleep to an absolute time, poll as a sleep: never shorter than asked. A sleep that a
 * handler ends, and that cannot say what is left of it. */
#include "guest.h"
#include <poll.h>
#include <sys/time.h>

static int64_t now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000 + t.tv_nsec; }
static int64_t start;
#define TOOK(ns) (now() - start >= (ns) && now() - start < (ns) + 2000000000)

static void on_alarm(int s) { (void)s; }

/* Through syscall(2): the library's prototype would not take such an address. */
static int tells_nobody(long call, long clock) {
    static const struct itimerval soon = {.it_value = {0, 20000}};
    const struct timespec long_time = {20, 0};
    setitimer(ITIMER_REAL, &soon, 0);
    const long r = call == SYS_nanosleep ? syscall(call, &long_time, 8) : syscall(call, clock, 0, &long_time, 8);
    return r == -1 && errno == EFAULT;
}

int main(void) {
    signal(SIGALRM, on_alarm);
    start = now();
    check("nanosleep", nanosleep(&(struct timespec){0, 20000000}, 0) == 0 && TOOK(20000000));
    start = now();
    check("usleep", usleep(10000) == 0 && TOOK(10000000));
    start = now();
    struct timespec t = {(start + 30000000) / 1000000000, (start + 30000000) % 1000000000};
    check("absolute", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0) == 0 && TOOK(30000000));
    start = now();
    check("poll", poll(0, 0, 15) == 0 && TOOK(15000000));
    check("bad value", nanosleep(&(struct timespec){0, 2000000000}, 0) == -1 && errno == EINVAL);
    check("what is left has no place", tells_nobody(SYS_nanosleep, 0) && tells_nobody(SYS_clock_nanosleep, CLOCK_MONOTONIC));
    return done();
}
