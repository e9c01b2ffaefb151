/* Signals taken without a handler: sigtimedwait, sigwaitinfo, sigwait, a wait that times out, a zero wait. */
#include "guest.h"

int main(void) {
    sigset_t s;
    siginfo_t i;
    int got;
    struct timespec t = {0, 20000000}, zero = {0, 0};
    sigemptyset(&s), sigaddset(&s, SIGUSR1), sigaddset(&s, SIGRTMIN), sigaddset(&s, SIGALRM);
    sigprocmask(SIG_BLOCK, &s, 0);
    check("times out", sigtimedwait(&s, &i, &t) == -1 && errno == EAGAIN);
    sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 5});
    raise(SIGUSR1);
    check("lowest first", sigwaitinfo(&s, &i) == SIGUSR1 && i.si_pid == getpid());
    check("then the queued", sigtimedwait(&s, &i, &zero) == SIGRTMIN && i.si_value.sival_int == 5);
    check("none left", sigtimedwait(&s, &i, &zero) == -1 && errno == EAGAIN);
    alarm(1);
    check("waits for the alarm", sigwait(&s, &got) == 0 && got == SIGALRM);
    sink(&i, sizeof i);
    return done();
}
