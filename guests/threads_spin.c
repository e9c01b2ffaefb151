/* Two threads that wait for each other by looks, hundreds of times, and make a call for what they have waited for: at a plain word, with
 * `pause`, and for so many looks before a lock is tried, as the threads of redis for its sockets do. */
#include "guest.h"
#include <immintrin.h>
#include <pthread.h>

enum { ROUNDS = 400, LOOKS = 1000000 };

static volatile unsigned long ball;
static volatile unsigned long pending, handled;
static volatile int over;
static pthread_mutex_t idle = PTHREAD_MUTEX_INITIALIZER;

static void play(unsigned long me) {
    for (int i = 0; i < ROUNDS; i++) {
        while (ball % 2 != me)
            if (i % 2) _mm_pause();
        ball++;
        getppid();
    }
}

static void *other(void *p) {
    play(1);
    for (;;) {
        for (int j = 0; j < LOOKS; j++)
            if (pending) break;
        if (over) return p;
        if (!pending) { /* held by whoever wants this one to rest */
            pthread_mutex_lock(&idle);
            pthread_mutex_unlock(&idle);
            continue;
        }
        handled += pending;
        getppid();
        pending = 0;
    }
}

int main(void) {
    pthread_t t;
    need("pthread_create", pthread_create(&t, 0, other, 0) == 0);
    play(0);
    for (unsigned long i = 1; i <= ROUNDS; i++) {
        pending = i;
        while (pending)
            ;
        getppid();
    }
    over = 1;
    pthread_join(t, 0);
    printf("ball %lu, handled %lu\n", ball, handled);
    return done();
}
