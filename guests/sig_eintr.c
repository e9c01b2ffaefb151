/* Calls that a handler interrupts even with SA_RESTART: poll, select, epoll_wait, sigtimedwait, futex with a timeout. */
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>

static void on(int s) { (void)s; }
#define INTERRUPTED(call) (setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 80000}}, 0), (call) == -1 && errno == EINTR)

int main(void) {
    struct sigaction a = {.sa_handler = on, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &a, 0);
    int p[2], e = epoll_create1(0);
    need("pipe", pipe(p) == 0);
    struct pollfd f = {p[0], POLLIN, 0};
    struct epoll_event ev;
    struct timeval tv = {5, 0};
    struct timespec ts = {5, 0};
    fd_set r;
    FD_ZERO(&r);
    FD_SET(p[0], &r);
    check("poll", INTERRUPTED(poll(&f, 1, 5000)));
    check("select", INTERRUPTED(select(p[0] + 1, &r, 0, 0, &tv)));
    check("epoll_wait", INTERRUPTED(epoll_wait(e, &ev, 1, 5000)));
    sigset_t s;
    sigemptyset(&s), sigaddset(&s, SIGUSR1);
    check("sigtimedwait", INTERRUPTED(sigtimedwait(&s, 0, &ts)));
    check("pause", INTERRUPTED(pause()));
    check("clock_nanosleep", (setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 80000}}, 0), clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, 0) == EINTR));
    return done();
}
