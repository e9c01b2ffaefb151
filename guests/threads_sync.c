/* Threads that wait for each other: mutexes, condition variables, barriers, locks for readers, semaphores, once, keys, timed waits, robust and
 * inheriting mutexes, detached threads. */
#include "guest.h"
#include <pthread.h>
#include <semaphore.h>
#include <sched.h>

enum { N = 4, ROUNDS = 300 };
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t b;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static sem_t sem;
static __thread int own = 1;
static int counter, turn, onces, ended, late, detached;

static void first(void) { onces++; }
static void destructor(void *p) { __atomic_fetch_add(&ended, (int)(long)p, __ATOMIC_RELAXED); }

static void *counts(void *p) {
    long id = (long)p;
    own += (int)id;
    pthread_once(&once, first);
    pthread_setspecific(key, (void *)1);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&m);
        int v = counter;
        if (i % 16 == 0) sched_yield();
        counter = v + 1;
        pthread_mutex_unlock(&m);
    }
    int last = pthread_barrier_wait(&b) == PTHREAD_BARRIER_SERIAL_THREAD;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_rwlock_rdlock(&rw);
        late += counter != N * ROUNDS + i / 1000;
        pthread_rwlock_unlock(&rw);
    }
    sem_post(&sem);
    return (void *)(long)(own * 2 + last * 1000);
}

static void *plays(void *p) {
    long id = (long)p;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&m);
        while (turn % 2 != id) pthread_cond_wait(&c, &m);
        turn++;
        pthread_cond_broadcast(&c);
        pthread_mutex_unlock(&m);
    }
    return 0;
}

static void *dies_with(void *mutex) {
    pthread_mutex_lock(mutex);
    return 0;
}

static void *alone(void *p) {
    sem_post(p);
    detached = 1;
    return 0;
}

static struct timespec in(long ms, clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000, t.tv_nsec %= 1000000000;
    return t;
}

int main(void) {
    pthread_t t[N];
    pthread_key_create(&key, destructor);
    pthread_barrier_init(&b, 0, N);
    sem_init(&sem, 0, 0);
    for (long i = 0; i < N; i++) need("pthread_create", pthread_create(&t[i], 0, counts, (void *)i) == 0);
    long sum = 0;
    for (int i = 0; i < N; i++) {
        void *v;
        sem_wait(&sem);
        pthread_join(t[i], &v);
        sum += (long)v;
    }
    check("all counted", counter == N * ROUNDS && !late && onces == 1 && ended == N);
    check("own variables, one last", sum == 2 * (1 + 2 + 3 + 4) + 1000);
    for (long i = 0; i < 2; i++) pthread_create(&t[i], 0, plays, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    check("turns", turn == 2 * ROUNDS);

    struct timespec soon = in(20, CLOCK_REALTIME);
    pthread_mutex_lock(&m);
    check("a condition that nobody signals", pthread_cond_timedwait(&c, &m, &soon) == ETIMEDOUT);
    check("locked again", pthread_mutex_trylock(&m) == EBUSY && pthread_mutex_unlock(&m) == 0);
    soon = in(10, CLOCK_REALTIME);
    check("a semaphore that nobody posts", sem_timedwait(&sem, &soon) == -1 && errno == ETIMEDOUT);

    pthread_mutexattr_t a;
    pthread_mutex_t r, pi;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&r, &a);
    pthread_create(&t[0], 0, dies_with, &r);
    pthread_join(t[0], 0);
    check("the owner is dead", pthread_mutex_lock(&r) == EOWNERDEAD && pthread_mutex_consistent(&r) == 0 && pthread_mutex_unlock(&r) == 0);
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&pi, &a);
    pthread_mutex_lock(&pi);
    pthread_create(&t[0], 0, dies_with, &pi);
    for (int i = 0; i < 10; i++) sched_yield();
    check("inherited", pthread_mutex_unlock(&pi) == 0 && pthread_join(t[0], 0) == 0 && pthread_mutex_trylock(&pi) == EBUSY);

    pthread_attr_t d;
    pthread_attr_init(&d);
    pthread_attr_setdetachstate(&d, PTHREAD_CREATE_DETACHED);
    pthread_create(&t[0], &d, alone, &sem);
    sem_wait(&sem);
    while (!__atomic_load_n(&detached, __ATOMIC_RELAXED)) sched_yield();
    check("of its own", 1);
    for (int i = 0; i < 200; i++) { /* more than there is room for at once */
        if (pthread_create(&t[0], 0, dies_with, &(pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER)) break;
        pthread_join(t[0], 0);
        counter = i;
    }
    check("one after the other", counter == 199);
    check("joins itself", pthread_join(pthread_self(), 0) == EDEADLK);
    return done();
}
