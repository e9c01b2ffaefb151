/* Threads that compute without a call beside others that sleep, compute as well, or wait for a plain word. */
#include "guest.h"
#include <immintrin.h>
#include <pthread.h>

static volatile unsigned go, seen, stop;
static volatile uint64_t passes[3];

/* Until the main thread, which has slept meanwhile, says so. */
static void *counts(void *p) {
    unsigned i = (unsigned)(long)p;
    while (!stop) passes[i]++;
    return 0;
}

static void *looks(void *p) {
    (void)p;
    while (!go) _mm_pause();
    seen++;
    return 0;
}

static void nap(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, 0); }

static int all_progress(void) { return passes[0] > 1000 && passes[1] > 1000 && passes[2] > 1000; }

/* Each of them makes progress while this one sleeps and looks. */
static void together(void) {
    pthread_t t[3];
    for (long i = 0; i < 3; i++) need("pthread_create", pthread_create(&t[i], 0, counts, (void *)i) == 0);
    for (int k = 0; k < 600 && !all_progress(); k++) nap(5);
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
    check("three count", all_progress());
    sink((void *)passes, sizeof passes); /* a schedule's own */
}

static void waits(void) {
    pthread_t t;
    need("pthread_create", pthread_create(&t, 0, looks, 0) == 0);
    nap(20);
    go = 1;
    pthread_join(t, 0);
    check("a spin with pause", seen == 1);
}

/* The one that spins came first: nobody else can set the word but a thread that is never called. */
static void *sets(void *p) {
    (void)p;
    go = 1;
    return 0;
}

static void main_spins(void) {
    pthread_t t;
    go = 0;
    need("pthread_create", pthread_create(&t, 0, sets, 0) == 0);
    while (!go)
        ;
    pthread_join(t, 0);
    check("the first thread spun", 1);
}

int main(void) {
    together();
    waits();
    main_spins();
    return done();
}
