/* Signals from outside, read from a descriptor (signalfd): each as its sender made it. TERM ends. Says "ready" first. */
#include "guest.h"
#include <sys/signalfd.h>

int main(void) {
    sigset_t all;
    struct signalfd_siginfo i;
    sigfillset(&all), sigprocmask(SIG_BLOCK, &all, 0);
    int fd = signalfd(-1, &all, SFD_CLOEXEC);
    need("signalfd", fd >= 0);
    puts("ready"), fflush(stdout);
    do {
        need("read", read(fd, &i, sizeof i) == sizeof i);
        printf("signal %u code %d errno %d value %d; the sender is %s, its user %s\n", i.ssi_signo, i.ssi_code, i.ssi_errno,
               i.ssi_int, i.ssi_pid && kill((pid_t)i.ssi_pid, 0) == 0 ? "there" : "nowhere", i.ssi_uid == getuid() ? "this one" : "another");
        fflush(stdout);
    } while (i.ssi_signo != SIGTERM);
    return 6;
}
