/* Signals that name one thread: those of job control, with a value, and those that no thread can take for itself. */
#define _GNU_SOURCE
#include "guest.h"
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>

static __thread int here;
static volatile int handled, by_whom, value;
static sem_t begun, heard, never;
static pid_t number;

static void on_signal(int s, siginfo_t *i, void *context) {
    handled = s, by_whom = here, value = i->si_code == SI_QUEUE ? i->si_value.sival_int : 0;
    sem_post(&heard);
    (void)context;
}

static void *waits(void *v) {
    here = 2, number = gettid();
    sem_post(&begun);
    while (sem_wait(&never)) {
    }
    return v;
}

static int is_heard(int s, int with) {
    while (sem_wait(&heard)) {
    }
    return handled == s && by_whom == 2 && value == with;
}

/* In a child, whose second thread gets the signal. */
static int child_gets(int s) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        pthread_t t;
        pthread_create(&t, 0, waits, 0);
        sem_wait(&begun);
        syscall(SYS_tgkill, getpid(), number, s);
        for (;;) pause();
    }
    waitpid(child, &status, WUNTRACED);
    if (!WIFSTOPPED(status)) return status;
    kill(child, SIGKILL);
    waitpid(child, 0, 0);
    return status;
}

int main(void) {
    static const int kinds[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, 40};
    const struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    pthread_t t;
    sem_init(&begun, 0, 0), sem_init(&heard, 0, 0), sem_init(&never, 0, 0);
    pthread_create(&t, 0, waits, 0);
    sem_wait(&begun);
    for (int i = 0; i < 5; i++) {
        const union sigval with = {.sival_int = 70 + i};
        sigaction(kinds[i], &a, 0);
        check("to a thread", pthread_kill(t, kinds[i]) == 0 && is_heard(kinds[i], 0));
        check("with a value", pthread_sigqueue(t, kinds[i], with) == 0 && is_heard(kinds[i], with.sival_int));
    }
    signal(SIGTSTP, SIG_IGN);
    check("ignored", pthread_kill(t, SIGTSTP) == 0);
    sem_post(&never);
    pthread_join(t, 0);
    check("stops all threads", WSTOPSIG(child_gets(SIGSTOP)) == SIGSTOP);
    check("ends all threads", WTERMSIG(child_gets(SIGKILL)) == SIGKILL);
    return done();
}
