/* A call that waits in one thread while others go on: pipes, sockets, poll, select, epoll, sleeps, children of nobody, locks, big writes. */
#include "guest.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <netinet/in.h>

static int p[2], q[2], s[2], ev, listener;
static struct sockaddr_in at;
static char big[400000], got[400000];

static void *echoes(void *v) {
    char c;
    (void)v;
    while (read(p[0], &c, 1) == 1 && c != 'q') {
        c++;
        if (write(q[1], &c, 1) != 1) break;
    }
    return 0;
}

static void *writes_much(void *fd) {
    return (void *)(long)(write((int)(long)fd, big, sizeof big) == sizeof big);
}

static void *accepts(void *v) {
    char c = 0;
    (void)v;
    int fd = accept(listener, 0, 0);
    need("recv", recv(fd, &c, 1, 0) == 1 && send(fd, &c, 1, 0) == 1);
    close(fd);
    return 0;
}

static void *wakes(void *how) {
    struct timespec t = {0, 3000000};
    nanosleep(&t, 0);
    uint64_t one = 1;
    if (write(ev, &one, 8) != 8) return 0;
    return how;
}

static void *sleeps(void *v) {
    struct timespec t = {0, 20000000};
    return nanosleep(&t, 0) ? 0 : v;
}

static void *locks(void *v) {
    (void)v;
    int fd = open("locked", O_RDWR | O_CREAT, 0600);
    int ok = fd >= 0 && flock(fd, LOCK_EX) == 0;
    close(fd);
    return (void *)(long)ok;
}

static int reads_all(int fd) {
    size_t n = 0;
    while (n < sizeof got) {
        ssize_t k = read(fd, got + n, sizeof got - n < 7777 ? sizeof got - n : 7777);
        if (k <= 0) return 0;
        n += (size_t)k;
    }
    return memcmp(big, got, sizeof big) == 0;
}

int main(void) {
    pthread_t t, u;
    void *v;
    uint64_t n;
    for (size_t i = 0; i < sizeof big; i++) big[i] = (char)(i * 7 + i / 251);
    need("setup", !pipe(p) && !pipe(q) && !socketpair(AF_UNIX, SOCK_STREAM, 0, s) && (ev = eventfd(0, 0)) >= 0);
    pthread_create(&t, 0, echoes, 0);
    int good = 0;
    for (int i = 0; i < 100; i++) {
        char c = (char)('A' + i % 20), d = 0;
        good += write(p[1], &c, 1) == 1 && read(q[0], &d, 1) == 1 && d == c + 1;
    }
    check("echo", good == 100 && write(p[1], "q", 1) == 1 && pthread_join(t, 0) == 0);
    pthread_create(&t, 0, writes_much, (void *)(long)q[1]);
    check("a pipe full", reads_all(q[0]) && pthread_join(t, &v) == 0 && v);
    pthread_create(&t, 0, writes_much, (void *)(long)s[1]);
    check("a socket full", reads_all(s[0]) && pthread_join(t, &v) == 0 && v);
    pthread_create(&t, 0, writes_much, (void *)(long)s[1]);
    check("all of it", recv(s[0], got, sizeof got, MSG_WAITALL) == sizeof got && pthread_join(t, &v) == 0 && v && !memcmp(big, got, sizeof big));

    socklen_t len = sizeof at;
    at.sin_family = AF_INET, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    need("listen", (listener = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && !bind(listener, (void *)&at, len) && !listen(listener, 4) && !getsockname(listener, (void *)&at, &len));
    pthread_create(&t, 0, accepts, 0);
    sched_yield();
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char c = 'x', d = 0;
    check("accept and connect", connect(fd, (void *)&at, sizeof at) == 0 && send(fd, &c, 1, 0) == 1 && recv(fd, &d, 1, 0) == 1 && d == 'x' && pthread_join(t, 0) == 0);
    close(fd);

    pthread_create(&t, 0, wakes, 0);
    struct pollfd pf = {ev, POLLIN, 0};
    check("poll", poll(&pf, 1, -1) == 1 && pf.revents == POLLIN && read(ev, &n, 8) == 8 && pthread_join(t, 0) == 0);
    pthread_create(&t, 0, wakes, 0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ev, &set);
    struct timeval tv = {5, 0};
    check("select", select(ev + 1, &set, 0, 0, &tv) == 1 && FD_ISSET(ev, &set) && read(ev, &n, 8) == 8 && pthread_join(t, 0) == 0);
    int ep = epoll_create1(0);
    struct epoll_event e = {EPOLLIN, {.u64 = 77}}, o;
    epoll_ctl(ep, EPOLL_CTL_ADD, ev, &e);
    pthread_create(&t, 0, wakes, 0);
    check("epoll", epoll_wait(ep, &o, 1, 5000) == 1 && o.data.u64 == 77 && read(ev, &n, 8) == 8 && pthread_join(t, 0) == 0);
    pthread_create(&t, 0, wakes, 0);
    pthread_create(&u, 0, wakes, 0);
    check("blocking reads", read(ev, &n, 8) == 8 && pthread_join(t, 0) == 0 && pthread_join(u, 0) == 0);
    check("nothing comes", poll(&pf, 1, 0) >= 0 && epoll_wait(ep, &o, 1, 0) >= 0);
    while (poll(&pf, 1, 0) == 1) need("drain", read(ev, &n, 8) == 8);
    pthread_create(&t, 0, sleeps, 0);
    pf.revents = 99;
    check("nobody writes", poll(&pf, 1, 1) == 0 && pf.revents == 0 && pthread_join(t, 0) == 0);

    fd = open("locked", O_RDWR | O_CREAT, 0600);
    need("flock", fd >= 0 && flock(fd, LOCK_EX) == 0);
    pthread_create(&t, 0, locks, 0);
    struct timespec ms = {0, 5000000};
    nanosleep(&ms, 0);
    check("a lock that is waited for", flock(fd, LOCK_UN) == 0 && pthread_join(t, &v) == 0 && v);
    unlink("locked");
    return done();
}
