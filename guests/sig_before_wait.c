/* A handler sets a flag, and the program looks at the flag before it waits: it may not wait for a signal that came before it looked. */
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

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

/* Computes for longer than the timer takes, which goes off once more after three seconds. */
static void compute_past_the_alarm(void) {
    struct itimerval soon = {.it_interval = {.tv_sec = 3}, .it_value = {.tv_usec = 1000}};
    volatile uint64_t sum = 0;
    fired = 0;
    setitimer(ITIMER_REAL, &soon, 0);
    for (uint64_t i = 0; i < 20 * 1000 * 1000; i++) sum += i; /* 5 to 20 ms */
}

/* ... then looks, and waits for up to three seconds. */
static void round_of(const char *what, int (*waits)(void)) {
    double start = now();
    compute_past_the_alarm();
    int interrupted = !fired && waits() < 0 && errno == EINTR;
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

static int ends[2], pair[2], listener;
static pid_t child;

static int by_read(void) {
    char c;
    return (int)read(ends[0], &c, 1);
}

static int by_write(void) {
    static char much[1 << 16];
    return (int)write(ends[1], much, sizeof much);
}

static int by_recv(void) {
    char c;
    return (int)recv(pair[0], &c, 1, 0);
}

static int by_accept(void) { return accept(listener, 0, 0); }

static int by_wait(void) {
    int status;
    return waitpid(child, &status, 0);
}

/* What goes on behind a handler with SA_RESTART ends without it. */
static void without_restart(void) {
    struct sigaction a = {.sa_handler = on_alarm};
    struct sockaddr_storage any = {.ss_family = AF_UNIX};
    sigaction(SIGALRM, &a, 0);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    need("pipe", pipe(ends) == 0);
    need("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    need("listen", bind(listener, (struct sockaddr *)&any, sizeof(sa_family_t)) == 0 && listen(listener, 1) == 0);
    need("fork", (child = fork()) >= 0);
    if (child == 0) {
        pause();
        _exit(0);
    }
    round_of("read", by_read);
    round_of("recv", by_recv);
    round_of("accept", by_accept);
    round_of("waitpid", by_wait);
    need("fill", by_write() > 0);
    round_of("write", by_write);
    /* Nothing is cut short that would not wait. */
    compute_past_the_alarm();
    check("bytes that are there", by_read() == 1 && fired);
    kill(child, SIGKILL);
    waitid(P_PID, (id_t)child, &(siginfo_t){0}, WEXITED | WNOWAIT);
    compute_past_the_alarm();
    check("a child that has ended", by_wait() == child && fired);
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
    without_restart();
    return done();
}
