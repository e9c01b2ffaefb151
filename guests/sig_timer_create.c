/* timer_create: a signal with a value, the overrun count, timer_gettime, SIGEV_NONE, timer_delete. */
#include "guest.h"

static volatile sig_atomic_t n, value, code;
static void on(int s, siginfo_t *i, void *c) { (void)s, (void)c; n++, value = i->si_value.sival_int, code = i->si_code; }

int main(void) {
    struct sigaction a = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
    sigaction(SIGRTMIN + 3, &a, 0);
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3, .sigev_value.sival_int = 99};
    timer_t t, u;
    check("create", timer_create(CLOCK_MONOTONIC, &e, &t) == 0);
    struct itimerspec s = {{0, 0}, {0, 5000000}}, g;
    check("set", timer_settime(t, 0, &s, 0) == 0);
    sigset_t all, old;
    sigfillset(&all), sigprocmask(SIG_BLOCK, &all, &old);
    while (!n) sigsuspend(&old);
    sigprocmask(SIG_SETMASK, &old, 0);
    check("value and code", value == 99 && code == SI_TIMER);
    check("no overrun", timer_getoverrun(t) == 0);
    check("disarmed", timer_gettime(t, &g) == 0 && g.it_value.tv_sec == 0 && g.it_value.tv_nsec == 0);
    e.sigev_notify = SIGEV_NONE;
    s.it_value.tv_sec = 100;
    check("silent one counts down", timer_create(CLOCK_REALTIME, &e, &u) == 0 && timer_settime(u, 0, &s, 0) == 0 && timer_gettime(u, &g) == 0 && g.it_value.tv_sec >= 99);
    check("delete", timer_delete(t) == 0 && timer_delete(u) == 0);
    return done();
}
