/* Blocked signals wait: sigpending names them, unblocking delivers before the call returns, ignoring discards. */
#include "guest.h"

static volatile sig_atomic_t n;
static void on(int s) { (void)s; n++; }

int main(void) {
    sigset_t s, p;
    signal(SIGUSR1, on), signal(SIGUSR2, on);
    sigemptyset(&s), sigaddset(&s, SIGUSR1), sigaddset(&s, SIGUSR2), sigaddset(&s, SIGKILL);
    check("block", sigprocmask(SIG_BLOCK, &s, 0) == 0);
    raise(SIGUSR1), raise(SIGUSR1), kill(getpid(), SIGUSR2);
    sigpending(&p);
    check("both pending", n == 0 && sigismember(&p, SIGUSR1) && sigismember(&p, SIGUSR2) && !sigismember(&p, SIGHUP));
    signal(SIGUSR2, SIG_IGN);
    sigpending(&p);
    check("ignoring discards", !sigismember(&p, SIGUSR2));
    sigprocmask(SIG_UNBLOCK, &s, 0);
    check("one delivered at once", n == 1);
    sigprocmask(SIG_BLOCK, 0, &p);
    check("mask empty", !sigismember(&p, SIGUSR1) && !sigismember(&p, SIGKILL));
    signal(SIGCHLD, SIG_DFL), signal(SIGWINCH, SIG_DFL);
    raise(SIGCHLD), raise(SIGWINCH), raise(SIGURG), raise(SIGCONT);
    check("ignored by default", 1);
    return done();
}
