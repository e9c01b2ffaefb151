/* Signals that the running thread blocks: another thread has them waited for, or takes them. */
#define _GNU_SOURCE
#include "guest.h"
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/time.h>

static sem_t sem, never;
static sigset_t all, none;
static volatile int handled, by_whom, stop;
static volatile unsigned long passes;
static __thread int here;
static int ends[2];

static void on_signal(int s) {
    handled = s;
    by_whom = here;
}

/* A thread that blocks every signal. */
static pthread_t blocks(void *(*f)(void *), void *p) {
    pthread_t t;
    sigset_t old;
    pthread_sigmask(SIG_SETMASK, &all, &old);
    need("pthread_create", pthread_create(&t, 0, f, p) == 0);
    pthread_sigmask(SIG_SETMASK, &old, 0);
    return t;
}

static void *takes(void *v) {
    siginfo_t i;
    (void)v;
    sem_post(&sem);
    int s = sigwaitinfo(&all, &i);
    return (void *)(long)(s == SIGUSR1 && (i.si_code == SI_TKILL || i.si_code == SI_USER) && i.si_pid == getpid() && i.si_uid == getuid());
}

/* It has been sent before it waits. */
static void *finds(void *v) {
    sigset_t pending;
    siginfo_t i;
    (void)v;
    sem_post(&sem);
    sem_wait(&never);
    int waits = sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1);
    int s = sigtimedwait(&all, &i, &(struct timespec){0, 0});
    int again = sigtimedwait(&all, &i, &(struct timespec){0, 0});
    return (void *)(long)(waits && s == SIGUSR1 && again == -1 && errno == EAGAIN);
}

static void *polls(void *v) {
    (void)v;
    sem_post(&sem);
    poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, -1);
    return 0;
}

static void *computes(void *v) {
    (void)v;
    sem_post(&sem);
    while (!stop) passes++;
    return 0;
}

static void *calls(void *v) {
    (void)v;
    sem_post(&sem);
    while (!stop) getppid();
    return 0;
}

static void alarm_in(long us) { setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, us}}, 0); }

/* The first thread waits for a word meanwhile. */
static int comes_through(void) {
    handled = by_whom = 0;
    alarm_in(20000);
    int r = sem_wait(&never);
    return r == -1 && errno == EINTR && handled == SIGALRM && by_whom == 1;
}

static void *naps(void *v) {
    struct timespec left = {0, 0};
    sem_post(&sem);
    int r = nanosleep(&(struct timespec){30, 0}, &left);
    return (void *)(long)(r == -1 && errno == EINTR && left.tv_sec >= 20 && left.tv_sec <= 30);
    (void)v;
}

int main(void) {
    pthread_t t;
    void *v;
    here = 1;
    sem_init(&sem, 0, 0), sem_init(&never, 0, 0);
    sigfillset(&all), sigemptyset(&none);
    need("pipe", pipe(ends) == 0);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_signal}, 0);
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_signal}, 0);

    t = blocks(takes, 0);
    sem_wait(&sem);
    check("sent to one that waits for it", pthread_kill(t, SIGUSR1) == 0 && pthread_join(t, &v) == 0 && v);
    t = blocks(finds, 0);
    sem_wait(&sem);
    need("pthread_kill", pthread_kill(t, SIGUSR1) == 0);
    sem_post(&never);
    check("sent before it waits", pthread_join(t, &v) == 0 && v);

    t = blocks(polls, 0);
    sem_wait(&sem);
    check("while another thread waits in the kernel", comes_through());
    need("write", write(ends[1], "x", 1) == 1);
    pthread_join(t, 0);
    t = blocks(computes, 0);
    sem_wait(&sem);
    check("while another thread computes", comes_through());
    stop = 1;
    pthread_join(t, 0);
    stop = 0;
    t = blocks(calls, 0);
    sem_wait(&sem);
    check("while another thread makes calls", comes_through());
    stop = 1;
    pthread_join(t, 0);

    need("pthread_create", pthread_create(&t, 0, naps, 0) == 0);
    sem_wait(&sem);
    usleep(20000);
    check("what is left of a sleep", pthread_kill(t, SIGUSR2) == 0 && pthread_join(t, &v) == 0 && v);
    return done();
}
