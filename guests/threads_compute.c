/* Threads that compute without a call beside others that sleep, compute as well, or wait for a plain word. */
#include "guest.h"
#include <immintrin.h>
#include <pthread.h>

static volatile unsigned go, seen, stop;
static volatile uint64_t passes[3];
static double sums[2];

/* Until the main thread, which has slept meanwhile, says so. */
static void *counts(void *p) {
    unsigned i = (unsigned)(long)p;
    while (!stop) passes[i]++;
    return 0;
}

static void *looks(void *p) {
    while (!go) {
        if (p) _mm_pause();
    }
    seen++;
    return 0;
}

/* Much state between two looks: vector registers, the stack, the heap. */
static void *mixes(void *p) {
    unsigned i = (unsigned)(long)p;
    double *a = calloc(512, sizeof *a);
    need("calloc", a != 0);
    for (int k = 0; k < 512; k++) a[k] = k;
    while (!stop) {
        for (int k = 1; k < 511; k++) a[k] = (a[k - 1] + a[k] + a[k + 1]) / 3 + (double)(i + 1) / 7;
        passes[i]++;
    }
    sums[i] = a[7];
    free(a);
    return 0;
}

static void nap(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, 0); }

static void together(const char *what, void *(*does)(void *), long n) {
    pthread_t t[3];
    stop = 0;
    memset((void *)passes, 0, sizeof passes);
    for (long i = 0; i < n; i++) need("pthread_create", pthread_create(&t[i], 0, does, (void *)i) == 0);
    /* Each of them makes progress while this one sleeps and looks. */
    for (int k = 0; k < 600; k++) {
        int all = 1;
        nap(5);
        for (long i = 0; i < n; i++) all &= passes[i] > 1000;
        if (all) break;
    }
    stop = 1;
    for (long i = 0; i < n; i++) pthread_join(t[i], 0);
    int all = 1;
    for (long i = 0; i < n; i++) all &= passes[i] > 1000;
    check(what, all);
    sink((void *)passes, sizeof passes); /* a schedule's own */
    sink(sums, sizeof sums);
}

static void waits(const char *what, void *pauses) {
    pthread_t t;
    go = 0;
    seen = 0;
    need("pthread_create", pthread_create(&t, 0, looks, pauses) == 0);
    nap(20);
    go = 1;
    pthread_join(t, 0);
    check(what, seen == 1);
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
    together("three count", counts, 3);
    together("two mix", mixes, 2);
    waits("a spin", 0);
    waits("a spin with pause", (void *)1);
    main_spins();
    return done();
}
