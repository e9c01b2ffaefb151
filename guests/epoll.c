/* epoll: level and edge triggered, one-shot, pointers as data, removal, a nested set. */
#include "guest.h"
#include <sys/epoll.h>

int main(void) {
    int p[2], q[2], e = epoll_create1(EPOLL_CLOEXEC), outer = epoll_create1(0);
    need("pipes", pipe(p) == 0 && pipe(q) == 0);
    struct epoll_event v[4], lp = {EPOLLIN, {.ptr = &p}}, lq = {EPOLLIN | EPOLLET, {.ptr = &q}}, lo = {EPOLLIN, {.fd = e}};
    char c;
    check("add", epoll_ctl(e, EPOLL_CTL_ADD, p[0], &lp) == 0 && epoll_ctl(e, EPOLL_CTL_ADD, q[0], &lq) == 0 && epoll_ctl(outer, EPOLL_CTL_ADD, e, &lo) == 0);
    check("twice", epoll_ctl(e, EPOLL_CTL_ADD, p[0], &lp) == -1 && errno == EEXIST);
    check("nothing", epoll_wait(e, v, 4, 0) == 0);
    need("write", write(q[1], "ab", 2) == 2);
    check("nested", epoll_wait(outer, v, 4, 0) == 1 && v[0].data.fd == e);
    check("edge once", epoll_wait(e, v, 4, 100) == 1 && v[0].data.ptr == &q && epoll_wait(e, v, 4, 0) == 0);
    sink(v, sizeof *v);
    need("write", write(p[1], "c", 1) == 1);
    check("level stays", epoll_wait(e, v, 4, 0) == 1 && epoll_wait(e, v, 4, 0) == 1 && v[0].data.ptr == &p);
    lp.events |= EPOLLONESHOT;
    epoll_ctl(e, EPOLL_CTL_MOD, p[0], &lp);
    check("one shot", epoll_wait(e, v, 4, 0) == 1 && epoll_wait(e, v, 4, 0) == 0);
    check("armed again", epoll_ctl(e, EPOLL_CTL_MOD, p[0], &lp) == 0 && epoll_wait(e, v, 4, 0) == 1 && read(p[0], &c, 1) == 1);
    check("removed", epoll_ctl(e, EPOLL_CTL_DEL, q[0], 0) == 0 && write(q[1], "d", 1) == 1 && epoll_wait(e, v, 4, 5) == 0);
    check("regular file", epoll_ctl(e, EPOLL_CTL_ADD, open("f", O_CREAT | O_RDWR, 0600), &lp) == -1 && errno == EPERM);
    return done();
}
