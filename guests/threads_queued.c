/* Real-time signals to one thread: each comes once for every time that it was sent, in order, with what was sent along. Any other is
 * pending once. In a child of fork none of them is. */
#define _GNU_SOURCE
#include "guest.h"
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>

enum { VALUES = 40, PLAIN = 5 };
static sem_t is_there, were_sent;
static volatile int handled, in_order = 1, usual;

static void on_value(int s, siginfo_t *i, void *context) {
    in_order &= i->si_code == SI_QUEUE && i->si_value.sival_int == 2 + handled++;
    (void)s, (void)context;
}

static void on_plain(int s, siginfo_t *i, void *context) {
    usual += s == SIGUSR1 ? 100 : i->si_code == SI_TKILL;
    (void)context;
}

static int child_has_none(void) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        sigset_t pending;
        sigpending(&pending);
        _exit(sigismember(&pending, SIGRTMIN) || sigismember(&pending, SIGUSR1));
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void *has_them(void *all) {
    siginfo_t i;
    sigset_t values, pending;
    sem_post(&is_there);
    while (sem_wait(&were_sent) != 0) {}
    sigpending(&pending);
    check("pending", sigismember(&pending, SIGRTMIN) && sigismember(&pending, SIGUSR1));
    check("none in a child", child_has_none());
    sigemptyset(&values), sigaddset(&values, SIGRTMIN);
    int taken = sigwaitinfo(&values, &i) == SIGRTMIN && i.si_value.sival_int == 0;
    taken &= sigtimedwait(&values, &i, &(struct timespec){0, 0}) == SIGRTMIN && i.si_value.sival_int == 1;
    check("two are taken", taken);
    pthread_sigmask(SIG_UNBLOCK, all, 0);
    check("the others are handled, in order", handled == VALUES - 2 && in_order);
    check("those without a value, and one that is pending once", usual == 100 + PLAIN);
    return 0;
}

int main(void) {
    pthread_t t;
    sigset_t all;
    struct sigaction value = {.sa_sigaction = on_value, .sa_flags = SA_SIGINFO};
    struct sigaction plain = {.sa_sigaction = on_plain, .sa_flags = SA_SIGINFO};
    sem_init(&is_there, 0, 0), sem_init(&were_sent, 0, 0);
    sigaction(SIGRTMIN, &value, 0), sigaction(SIGRTMIN + 1, &plain, 0), sigaction(SIGUSR1, &plain, 0);
    sigemptyset(&all), sigaddset(&all, SIGRTMIN), sigaddset(&all, SIGRTMIN + 1), sigaddset(&all, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    need("a thread", pthread_create(&t, 0, has_them, &all) == 0);
    sem_wait(&is_there);
    int sent = 0;
    for (int i = 0; i < VALUES; i++) sent |= pthread_sigqueue(t, SIGRTMIN, (union sigval){.sival_int = i});
    for (int i = 0; i < PLAIN; i++) sent |= pthread_kill(t, SIGRTMIN + 1) | pthread_kill(t, SIGUSR1);
    check("sent", sent == 0);
    sem_post(&were_sent);
    pthread_join(t, 0);
    return done();
}
