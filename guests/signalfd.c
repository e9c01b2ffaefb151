/* signalfd: blocked signals read from a descriptor, with sender and value; none left says EAGAIN. */
#include "guest.h"
#include <sys/signalfd.h>

int main(void) {
    sigset_t s;
    sigemptyset(&s), sigaddset(&s, SIGUSR1), sigaddset(&s, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &s, 0);
    int fd = signalfd(-1, &s, SFD_NONBLOCK | SFD_CLOEXEC);
    check("made", fd >= 0);
    struct signalfd_siginfo i[3];
    check("none yet", read(fd, i, sizeof i) == -1 && errno == EAGAIN);
    kill(getpid(), SIGUSR1);
    sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 31});
    check("two at once", read(fd, i, sizeof i) == 2 * sizeof *i);
    check("who", i[0].ssi_signo == SIGUSR1 && i[0].ssi_pid == (uint32_t)getpid() && i[1].ssi_int == 31);
    sink(i, 2 * sizeof *i);
    sigdelset(&s, SIGUSR1);
    check("mask changed", signalfd(fd, &s, 0) == fd);
    return done();
}
