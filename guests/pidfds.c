/* Descriptors of processes: opened, made with a child, waited for by poll and by waitid, and used for signals. */
#define _GNU_SOURCE
#include "guest.h"
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif
#define WITH_PIDFD 0x1000

static int open_of(pid_t pid, unsigned flags) { return (int)syscall(SYS_pidfd_open, pid, flags); }
static int tell(int fd, int s) { return (int)syscall(SYS_pidfd_send_signal, fd, s, NULL, 0); }

static int is_ready(int fd, int milliseconds) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, milliseconds) == 1 && (p.revents & POLLIN);
}

static int ends_as(int fd, int code, int status) {
    siginfo_t i = {0};
    return waitid((idtype_t)P_PIDFD, (id_t)fd, &i, WEXITED) == 0 && i.si_code == code && i.si_status == status;
}

static pid_t waiting(void) {
    pid_t pid = fork();
    need("fork", pid >= 0);
    if (pid == 0)
        for (;;) pause();
    return pid;
}

static int leaves(void *p) { _exit(*(int *)p); }

static void of_a_child(void) {
    int fd = open_of(waiting(), 0);
    check("opened", fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    check("it lives", !is_ready(fd, 0) && tell(fd, 0) == 0);
    check("asked to end", tell(fd, SIGTERM) == 0);
    check("seen to end", is_ready(fd, -1));
    check("by that signal", ends_as(fd, CLD_KILLED, SIGTERM));
    check("gone", tell(fd, 0) == -1 && errno == ESRCH);
    close(fd);
    fd = open_of(waiting(), O_NONBLOCK);
    siginfo_t i;
    check("not yet", waitid((idtype_t)P_PIDFD, (id_t)fd, &i, WEXITED) == -1 && errno == EAGAIN);
    usleep(700 * 1000); /* old enough that it would be made again */
    check("killed", tell(fd, SIGKILL) == 0 && is_ready(fd, -1) && ends_as(fd, CLD_KILLED, SIGKILL));
    close(fd);
}

static void made_with_one(void) {
    int fd = -1, three = 3, four = 4;
    static char stack[65536] __attribute__((aligned(16)));
    pid_t pid = (pid_t)syscall(SYS_clone, WITH_PIDFD | SIGCHLD, 0, &fd, 0, 0);
    need("clone", pid >= 0);
    if (pid == 0) _exit(fd == -1 ? 2 : 9);
    check("with a copy", fd >= 0 && ends_as(fd, CLD_EXITED, 2));
    close(fd);
    struct { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, size, tls; } k = {
        .flags = WITH_PIDFD, .pidfd = (uint64_t)&fd, .exit_signal = SIGCHLD};
    pid = (pid_t)syscall(SYS_clone3, &k, sizeof k);
    need("clone3", pid >= 0);
    if (pid == 0) _exit(three);
    check("with another", fd >= 0 && ends_as(fd, CLD_EXITED, 3));
    close(fd);
    fd = -1;
    pid = clone(leaves, stack + sizeof stack, CLONE_VM | CLONE_VFORK | WITH_PIDFD | SIGCHLD, &four, &fd);
    check("with one in its memory", pid > 0 && fd >= 0 && ends_as(fd, CLD_EXITED, 4));
    close(fd);
    char *const argv[] = {"sh", "-c", "exit 5", NULL};
    fd = -1;
    if ((pid = vfork()) == 0) execv("/bin/sh", argv), _exit(127);
    fd = open_of(pid, 0);
    check("of a program", fd >= 0 && ends_as(fd, CLD_EXITED, 5));
    close(fd);
}

static void several(void) {
    int set = epoll_create1(0), code[3] = {0};
    for (int c = 0; c < 3; c++) {
        pid_t pid = fork();
        need("fork", pid >= 0);
        if (pid == 0) usleep(1000 * (unsigned)c), _exit(10 + c);
        int fd = open_of(pid, 0);
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        need("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
    }
    for (int c = 0; c < 3; c++) {
        struct epoll_event e;
        siginfo_t i = {0};
        need("epoll_wait", epoll_wait(set, &e, 1, -1) == 1);
        need("waitid", waitid((idtype_t)P_PIDFD, (id_t)e.data.fd, &i, WEXITED) == 0);
        if (i.si_status >= 10 && i.si_status < 13) code[i.si_status - 10]++;
        epoll_ctl(set, EPOLL_CTL_DEL, e.data.fd, NULL); /* children made later have it, too */
        close(e.data.fd);
    }
    check("each once", code[0] == 1 && code[1] == 1 && code[2] == 1);
}

static volatile sig_atomic_t got;
static void on_usr1(int s) { got = s; }

int main(void) {
    int own = open_of(getpid(), 0);
    signal(SIGUSR1, on_usr1);
    check("of itself", own >= 0 && !is_ready(own, 0));
    check("to itself", tell(own, SIGUSR1) == 0 && got == SIGUSR1);
    check("of nobody", open_of(0x3fffffff, 0) == -1 && errno == ESRCH);
    check("of no descriptor", tell(0, 0) == -1 && errno == EBADF);
    check("with unknown flags", open_of(getpid(), 1) == -1 && errno == EINVAL);
    of_a_child();
    made_with_one();
    several();
    fflush(stdout);
    check("no end", tell(own, SIGKILL) != 0);
    return done();
}
