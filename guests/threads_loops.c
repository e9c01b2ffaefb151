/* Threads that compute in one loop, and then in another one right behind it, which nothing can be planted in: one that waits for
 * input has its turn all the same, and before those that compute. */
#include "guest.h"
#include <pthread.h>
#include <unistd.h>

enum { THREADS = 4, SLEEPS = 5 };

static volatile int released, beyond;

static void *computes(void *p) {
    __asm__ volatile(
        "1: cmpl $0, %0\n"
        "je 1b\n"
        "lock incl %1\n"
        "2: jmp 2b\n"
        : "+m"(released), "+m"(beyond));
    return p;
}

int main(void) {
    pthread_t t;
    for (int i = 0; i < THREADS; i++) need("pthread_create", pthread_create(&t, 0, computes, 0) == 0);
    for (int i = 0; i < SLEEPS; i++) usleep(1000);
    released = 1;
    while (beyond < THREADS) usleep(1000);
    for (int i = 0; i < SLEEPS; i++) usleep(1000);
    printf("%d threads compute on\n", beyond);
    return done();
}
