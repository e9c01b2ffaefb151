/* A child that waits for signals by signalfd and epoll, is killed and made again: its parent sends one after the other, and each is
 * answered. How many there are is a matter of time, and not told. */
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

enum { AFTER = 5, LIMIT_MS = 10000 };

static void live(int to) {
    sigset_t usr1;
    sigemptyset(&usr1), sigaddset(&usr1, SIGUSR1);
    const int fd = signalfd(-1, &usr1, SFD_CLOEXEC), set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0x1234567890};
    need("signalfd", fd >= 0 && set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    FILE *number = fopen("number", "w");
    need("number", number && fprintf(number, "%d", getpid()) > 0 && fclose(number) == 0);
    for (;;) {
        struct signalfd_siginfo info;
        struct epoll_event came = {0};
        const int n = epoll_wait(set, &came, 1, -1);
        if (n == 0 || (n < 0 && errno == EINTR)) continue;
        need("the same event", n == 1 && came.events == EPOLLIN && came.data.u64 == event.data.u64);
        need("a signal", read(fd, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1);
        need("answer", write(to, "x", 1) == 1);
    }
}

int main(void) {
    int ends[2], status;
    sigset_t usr1;
    char c;
    sigemptyset(&usr1), sigaddset(&usr1, SIGUSR1);
    need("sigprocmask", sigprocmask(SIG_BLOCK, &usr1, NULL) == 0 && pipe(ends) == 0);
    const pid_t child = fork();
    need("fork", child >= 0);
    if (child == 0) live(ends[1]);
    while (access("number", F_OK) != 0) usleep(10000);
    int lost = 0;
    for (int left = AFTER; left > 0 && !lost; usleep(100000)) {
        struct pollfd answers = {.fd = ends[0], .events = POLLIN};
        need("kill", kill(child, SIGUSR1) == 0);
        lost = poll(&answers, 1, LIMIT_MS) != 1 || read(ends[0], &c, 1) != 1;
        left -= access("go", F_OK) == 0;
    }
    check("each is answered", !lost);
    check("a thread that it has not", syscall(SYS_tgkill, child, child + 1, SIGUSR1) == -1 && errno == ESRCH);
    check("the child", kill(child, SIGTERM) == 0 && waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGTERM);
    return done();
}
