/* select, pselect, ppoll, epoll_pwait and epoll_pwait2 with masks and limits: signals come in while the mask lets them. */
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

static volatile int hits;
static void hit(int s) { hits += s == SIGUSR1; }

int main(void) {
    struct sigaction a = {.sa_handler = hit};
    sigset_t block, none;
    sigemptyset(&none), sigemptyset(&block), sigaddset(&block, SIGUSR1);
    sigaction(SIGUSR1, &a, 0), sigprocmask(SIG_BLOCK, &block, 0);
    int p[2], e = epoll_create1(0);
    need("pipe", pipe(p) == 0);
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 77}, got[2];
    epoll_ctl(e, EPOLL_CTL_ADD, p[0], &ev);
    fd_set r;
    struct timespec t = {0, 3000000};
    FD_ZERO(&r);
    FD_SET(p[0], &r);
    check("pselect limit", pselect(p[0] + 1, &r, 0, 0, &t, &none) == 0 && !FD_ISSET(p[0], &r));
    raise(SIGUSR1);
    FD_SET(p[0], &r);
    check("pselect signal", pselect(p[0] + 1, &r, 0, 0, 0, &none) == -1 && errno == EINTR && hits == 1);
    raise(SIGUSR1);
    struct pollfd f = {p[0], POLLIN, 0};
    check("ppoll masked", ppoll(&f, 1, &t, &block) == 0 && hits == 1);
    check("ppoll signal", ppoll(&f, 1, 0, &none) == -1 && errno == EINTR && hits == 2);
    raise(SIGUSR1);
    check("epoll_pwait signal", epoll_pwait(e, got, 2, -1, &none) == -1 && errno == EINTR && hits == 3);
    raise(SIGUSR1);
    long n = syscall(SYS_epoll_pwait2, e, got, 2, &t, &block, 8);
    check("epoll_pwait2 masked", n == 0 && hits == 3);
    n = syscall(SYS_epoll_pwait2, e, got, 2, 0, &none, 8);
    check("epoll_pwait2 signal", n == -1 && errno == EINTR && hits == 4);
    need("write", write(p[1], "x", 1) == 1);
    check("ready", syscall(SYS_epoll_pwait2, e, got, 2, &t, 0, 8) == 1 && got[0].data.u64 == 77);
    raise(SIGUSR1);
    check("ready before signal", epoll_pwait(e, got, 2, 10, &block) == 1 && hits == 4);
    struct timeval tv = {0, 20000};
    FD_ZERO(&r);
    FD_SET(p[0], &r);
    check("select", select(p[0] + 1, &r, 0, 0, &tv) == 1 && FD_ISSET(p[0], &r));
    sink(&tv, sizeof tv);
    int closed = dup(p[0]); /* a number the table has room for: select looks no further than the table */
    FD_ZERO(&r);
    FD_SET(closed, &r);
    close(closed);
    check("bad descriptor", select(closed + 1, &r, 0, 0, &tv) == -1 && errno == EBADF);
    f = (struct pollfd){99, POLLIN, 0};
    check("poll invalid", poll(&f, 1, 0) == 1 && f.revents == POLLNVAL);
    check("negative limit", syscall(SYS_ppoll, &f, 1, &(struct timespec){-1, 0}, 0, 8) == -1 && errno == EINVAL);
    return done();
}
