/* A handler with siginfo: who sent it and with what value, for kill, raise, sigqueue; realtime signals keep order. */
#include "guest.h"

static volatile int order[8], n;
static siginfo_t last;
static void on(int s, siginfo_t *i, void *c) { (void)c; order[n++ & 7] = s, last = *i; }

int main(void) {
    struct sigaction a = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &a, 0), sigaction(SIGRTMIN, &a, 0), sigaction(SIGRTMIN + 1, &a, 0);
    kill(getpid(), SIGUSR1);
    check("kill", n == 1 && last.si_signo == SIGUSR1 && last.si_code == SI_USER && last.si_pid == getpid() && last.si_uid == getuid());
    raise(SIGUSR1);
    check("raise", n == 2 && last.si_code == SI_TKILL && last.si_pid == getpid());
    sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 4711});
    check("sigqueue", n == 3 && last.si_code == SI_QUEUE && last.si_value.sival_int == 4711 && last.si_pid == getpid());
    sink(&last, sizeof last);
    sigset_t s;
    sigfillset(&s);
    sigprocmask(SIG_BLOCK, &s, 0);
    n = 0;
    for (int i = 0; i < 2; i++) {
        sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = i});
        sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i});
        kill(getpid(), SIGUSR1);
    }
    sigprocmask(SIG_UNBLOCK, &s, 0);
    printf("%d delivered\n", n); /* USR1 does not queue, realtime ones do */
    int high = 0, low = 0, usr = 0;
    for (int i = 0; i < n; i++) high += order[i] == SIGRTMIN + 1, low += order[i] == SIGRTMIN, usr += order[i] == SIGUSR1;
    printf("%d %d %d\n", high, low, usr);
    return done();
}
