/* Signals and threads: to one of them, waited for, by cancellation, by a timer while all wait. */
#define _GNU_SOURCE
#include "guest.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/time.h>

static pthread_t first;
static __thread int here;
static volatile int handled, by_whom;
static sem_t sem;

static void on_signal(int s) {
    handled = s;
    by_whom = here;
}

static void *waits(void *v) {
    here = 2;
    sem_post(&sem);
    int r = sem_wait(v);
    return (void *)(long)(r == -1 && errno == EINTR);
}

static void *takes(void *set) {
    int s = 0;
    sem_post(&sem);
    return (void *)(long)(sigwait(set, &s) == 0 ? s : -1);
}

static void cleans(void *p) { ++*(int *)p; }

static void *is_cancelled(void *p) {
    pthread_cleanup_push(cleans, p);
    sem_post(&sem);
    for (;;) sleep(100);
    pthread_cleanup_pop(0);
    return 0;
}

static void *raises(void *v) {
    here = 3;
    return (void *)(long)(raise(SIGUSR2) == 0 && handled == SIGUSR2 && by_whom == 3);
    (void)v;
}

/* The thread may not wait yet when the first one comes. */
static int signals_until_ended(pthread_t t) {
    void *v = 0;
    while (pthread_tryjoin_np(t, &v) == EBUSY) {
        pthread_kill(t, SIGUSR1);
        usleep(1000);
    }
    return v != 0;
}

int main(void) {
    pthread_t t;
    void *v;
    sem_t never;
    sigset_t set, old;
    struct sigaction a = {.sa_handler = on_signal};
    first = pthread_self();
    here = 1;
    sem_init(&sem, 0, 0), sem_init(&never, 0, 0);
    sigaction(SIGUSR1, &a, 0), sigaction(SIGUSR2, &a, 0), sigaction(SIGALRM, &a, 0);

    handled = 0;
    pthread_create(&t, 0, waits, &never);
    sem_wait(&sem);
    check("to one that waits for a word", signals_until_ended(t) && by_whom == 2);
    pthread_create(&t, 0, raises, 0);
    check("to itself", pthread_join(t, &v) == 0 && v);
    check("is there", pthread_kill(first, 0) == 0);

    sigemptyset(&set), sigaddset(&set, SIGTERM), sigaddset(&set, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    pthread_create(&t, 0, takes, &set);
    sem_wait(&sem);
    check("waited for", kill(getpid(), SIGTERM) == 0 && pthread_join(t, &v) == 0 && v == (void *)SIGTERM);

    int cleaned = 0;
    pthread_create(&t, 0, is_cancelled, &cleaned);
    sem_wait(&sem);
    check("cancelled", pthread_cancel(t) == 0 && pthread_join(t, &v) == 0 && v == PTHREAD_CANCELED && cleaned == 1);

    struct itimerval in = {{0, 0}, {0, 20000}};
    pthread_create(&t, 0, waits, &never);
    sem_wait(&sem);
    handled = 0;
    sigemptyset(&set), sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    setitimer(ITIMER_REAL, &in, 0);
    sigemptyset(&set);
    check("while all wait", sigsuspend(&set) == -1 && errno == EINTR && handled == SIGALRM && by_whom == 1);
    check("the other goes on waiting", signals_until_ended(t));
    return done();
}
