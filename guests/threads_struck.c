/* A thread computes without a call until the first one, which sleeps meanwhile, says so. flip_here is executed some 73 times a
 * millisecond, with the result in rax and the rounds that are left in rdx. With an argument it only waits for that word, and flip_kept
 * is executed before, with the address of a word in rax that nobody uses before the end. */
#include "guest.h"
#include <pthread.h>

static volatile int over;
static volatile uint64_t kept = 1;

static void *computes(void *p) {
    uint64_t x = 88172645463325252u;
    while (!over)
        for (long i = 73; i > 0; i--) {
            for (int k = 0; k < 4096; k++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            __asm__ volatile(".globl flip_here\n.type flip_here, @function\nflip_here: .byte 0x0f, 0x1f, 0x44, 0, 0" : "+a"(x), "+d"(i));
        }
    sink(&x, sizeof x); /* a schedule's own */
    return p;
}

static void *waits(void *p) {
    __asm__ volatile(".globl flip_kept\n.type flip_kept, @function\nflip_kept: .byte 0x0f, 0x1f, 0x44, 0, 0" ::"a"(&kept) : "memory");
    while (!over)
        ;
    check("the word is what it was", kept == 1);
    return p;
}

int main(int argc, char **argv) {
    pthread_t t;
    (void)argv;
    need("pthread_create", pthread_create(&t, 0, argc > 1 ? waits : computes, 0) == 0);
    for (int i = 0; i < 5; i++) nanosleep(&(struct timespec){0, 1000000}, 0);
    over = 1;
    pthread_join(t, 0);
    check("the first thread slept", 1);
    return done();
}
