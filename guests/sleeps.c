/* Sleeping: nanosleep, usleep, clock_nanosleep to an absolute time, poll as a sleep: never shorter than asked. */
#include "guest.h"
#include <poll.h>

static int64_t now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000 + t.tv_nsec; }
static int64_t start;
#define TOOK(ns) (now() - start >= (ns) && now() - start < (ns) + 2000000000)

int main(void) {
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
    return done();
}
