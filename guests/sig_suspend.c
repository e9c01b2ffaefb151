/* sigsuspend: the mask is swapped for the wait only; ppoll does the same. */
#include "guest.h"
#include <poll.h>

static volatile sig_atomic_t n;
static void on(int s) { (void)s; n++; }

int main(void) {
    signal(SIGUSR1, on);
    sigset_t block, old, now;
    sigemptyset(&block), sigaddset(&block, SIGUSR1);
    sigprocmask(SIG_BLOCK, &block, &old);
    raise(SIGUSR1);
    check("held back", n == 0);
    check("suspend says EINTR", sigsuspend(&old) == -1 && errno == EINTR && n == 1);
    sigprocmask(SIG_BLOCK, 0, &now);
    check("blocked again", sigismember(&now, SIGUSR1) == 1);
    raise(SIGUSR1);
    struct timespec t = {5, 0};
    check("ppoll", ppoll(0, 0, &t, &old) == -1 && errno == EINTR && n == 2);
    sigprocmask(SIG_SETMASK, &old, 0);
    check("no more", n == 2);
    return done();
}
