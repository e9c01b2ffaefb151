/* Timers for one thread: the C library's, which calls a function in a thread of its own, and one for a thread by its number, with
 * a handler. */
#define _GNU_SOURCE
#include "guest.h"
#include <pthread.h>
#include <semaphore.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
#define TIMES 3

static pthread_t first;
static sem_t called, handled, begun, ended;
static volatile int value, elsewhere, heard;
static pid_t number;
static __thread int here;

static void is_called(union sigval v) {
    value = v.sival_int, elsewhere = !pthread_equal(pthread_self(), first);
    sem_post(&called);
}

static void on_signal(int s, siginfo_t *i, void *context) {
    heard = here == 2 && i->si_code == SI_TIMER && i->si_value.sival_int == 8;
    sem_post(&handled);
    (void)s, (void)context;
}

static void *waits(void *v) {
    here = 2, number = gettid();
    sem_post(&begun);
    while (sem_wait(&ended)) {
    }
    return v;
}

int main(void) {
    const struct itimerspec soon = {.it_value.tv_nsec = 2000000}, often = {{0, 2000000}, {0, 2000000}};
    const struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    struct sigevent e = {.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = 7, .sigev_notify_function = is_called};
    pthread_t t;
    timer_t timer;
    first = pthread_self();
    sem_init(&called, 0, 0), sem_init(&handled, 0, 0), sem_init(&begun, 0, 0), sem_init(&ended, 0, 0);

    check("made", timer_create(CLOCK_MONOTONIC, &e, &timer) == 0 && timer_settime(timer, 0, &often, 0) == 0);
    for (int n = 0; n < TIMES; n++)
        while (sem_wait(&called)) {
        }
    check("called in a thread", value == 7 && elsewhere && timer_delete(timer) == 0);

    sigaction(SIGRTMIN + 4, &a, 0);
    pthread_create(&t, 0, waits, 0);
    sem_wait(&begun);
    e = (struct sigevent){.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 4, .sigev_value.sival_int = 8};
    e.sigev_notify_thread_id = number;
    check("by number", timer_create(CLOCK_REALTIME, &e, &timer) == 0 && timer_settime(timer, 0, &soon, 0) == 0);
    while (sem_wait(&handled)) {
    }
    check("handled by the thread", heard && timer_delete(timer) == 0);
    sem_post(&ended);
    pthread_join(t, 0);
    return done();
}
