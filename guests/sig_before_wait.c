/* A handler sets a flag, and the program looks at the flag before it waits: it may not wait for a signal that came before it looked. */
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>

static volatile sig_atomic_t fired;

static void on_alarm(int s) {
    (void)s;
    fired = 1;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Computes for longer than the timer takes, looks, and waits for up to three seconds. */
static void round_of(const char *what, int (*wait)(void)) {
    struct itimerval soon = {.it_value = {.tv_usec = 1000}};
    volatile uint64_t sum = 0;
    fired = 0;
    setitimer(ITIMER_REAL, &soon, 0);
    double start = now();
    for (uint64_t i = 0; i < 4 * 1000 * 1000; i++) sum += i;
    int interrupted = !fired && wait() < 0 && errno == EINTR;
    check(what, fired && now() - start < 2.5);
    sink(&interrupted, sizeof interrupted);
}

static int by_poll(void) { return poll(0, 0, 3000); }
static int by_poll_for_ever(void) { return poll(0, 0, -1); }

static int by_select(void) {
    struct timeval limit = {3, 0};
    return select(0, 0, 0, 0, &limit);
}

static int epoll;

static int by_epoll(void) {
    struct epoll_event e;
    return epoll_wait(epoll, &e, 1, 3000);
}

static int by_sleep(void) {
    struct timespec limit = {3, 0}, rest = {0, 0};
    int r = nanosleep(&limit, &rest);
    return r == 0 || rest.tv_sec == 0 ? 0 : r; /* nearly all of it is left */
}

int main(void) {
    struct sigaction a = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &a, 0);
    epoll = epoll_create1(0);
    round_of("poll", by_poll);
    round_of("poll without a limit", by_poll_for_ever);
    round_of("select", by_select);
    round_of("epoll", by_epoll);
    round_of("nanosleep", by_sleep);
    round_of("pause", pause);
    fired = 0;
    raise(SIGALRM); /* without a wait: nothing is cut short */
    check("poll that does not wait", poll(0, 0, 0) == 0 && fired);
    return done();
}
