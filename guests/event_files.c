/* timerfd, eventfd, signalfd, inotify, memfd and pidfd in ways that guests of one kind each do not try. */
#include "guest.h"
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

int main(void) {
    int t = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec i = {{0, 2000000}, {0, 1000000}}, old;
    uint64_t n = 0;
    check("unarmed", read(t, &n, 8) == -1 && errno == EAGAIN);
    check("armed", timerfd_settime(t, 0, &i, &old) == 0 && old.it_value.tv_sec == 0);
    struct pollfd f = {t, POLLIN, 0};
    check("fires", poll(&f, 1, 1000) == 1 && read(t, &n, 8) == 8 && n >= 1);
    sink(&n, 8);
    check("gettime", timerfd_gettime(t, &i) == 0 && i.it_interval.tv_nsec == 2000000);
    sink(&i, sizeof i);
    check("short read", read(t, &n, 4) == -1 && errno == EINVAL);
    i = (struct itimerspec){{0, 0}, {1, 0}};
    check("absolute, past", timerfd_settime(t, TFD_TIMER_ABSTIME, &i, 0) == 0 && poll(&f, 1, 1000) == 1 && read(t, &n, 8) == 8);
    int e = eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK);
    check("semaphore", read(e, &n, 8) == 8 && n == 1 && read(e, &n, 8) == 8 && read(e, &n, 8) == 8 && read(e, &n, 8) == -1 && errno == EAGAIN);
    n = ~0ull;
    check("too much", write(e, &n, 8) == -1 && errno == EINVAL);
    sigset_t s;
    sigemptyset(&s), sigaddset(&s, SIGUSR2), sigaddset(&s, SIGRTMIN), sigprocmask(SIG_BLOCK, &s, 0);
    int g = signalfd(-1, &s, SFD_NONBLOCK);
    struct signalfd_siginfo info[4];
    memset(info, 0, sizeof info);
    sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 5}), sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 6}), kill(getpid(), SIGUSR2), kill(getpid(), SIGUSR2);
    check("three", read(g, info, sizeof info) == 3 * (ssize_t)sizeof *info);
    for (int k = 0; k < 3; k++) printf("signal %d code %d value %d own %d\n", info[k].ssi_signo, info[k].ssi_code, info[k].ssi_int, info[k].ssi_pid == (uint32_t)getpid());
    check("none left", read(g, info, sizeof info) == -1 && errno == EAGAIN);
    int w = inotify_init1(IN_NONBLOCK);
    need("dir", mkdir("d", 0755) == 0);
    int wd = inotify_add_watch(w, "d", IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE);
    close(open("d/a", O_WRONLY | O_CREAT, 0600)), rename("d/a", "d/b"), unlink("d/b");
    char buf[1024] __attribute__((aligned(8)));
    ssize_t len = read(w, buf, sizeof buf);
    for (char *p = buf; p < buf + len;) {
        struct inotify_event *v = (void *)p;
        printf("watch %d mask %x name %s moved %d\n", v->wd == wd, v->mask, v->name, v->cookie != 0);
        p += sizeof *v + v->len;
    }
    check("too small", (close(open("d/c", O_WRONLY | O_CREAT, 0600)), read(w, buf, 4)) == -1 && errno == EINVAL);
    check("removed", inotify_rm_watch(w, wd) == 0 && inotify_rm_watch(w, wd) == -1 && errno == EINVAL);
    unlink("d/c");
    int m = memfd_create("name", MFD_ALLOW_SEALING);
    check("memfd", ftruncate(m, 100) == 0 && pwrite(m, "xyz", 3, 50) == 3);
    check("sealed", fcntl(m, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0 && write(m, "q", 1) == -1 && errno == EPERM);
    check("no shrinking", ftruncate(m, 10) == -1 && errno == EPERM && fcntl(m, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE));
    char link[64];
    len = readlink("/proc/self/fd/3", link, sizeof link);
    printf("%.*s\n", (int)len, link);
    return done();
}
