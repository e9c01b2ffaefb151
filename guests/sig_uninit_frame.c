/* What a signal frame leaves behind on the stack, and what an uninitialised buffer holds, is written out: kernel padding,
 * pointers, canaries; equal in every replica or not at all. */
#include "guest.h"

static void on(int s, siginfo_t *i, void *c) { (void)s, (void)i, (void)c; }
__attribute__((noinline)) static void leftovers(void) {
    volatile char dirt[16384];
    __asm__ volatile("" : : "r"(dirt) : "memory");
    sink((const void *)dirt, sizeof dirt);
}

int main(void) {
    struct sigaction a = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &a, 0);
    for (int i = 0; i < 10; i++) raise(SIGUSR1), leftovers();
    struct { char c; long l; short s; } padded;
    padded.c = 1, padded.l = 2, padded.s = 3;
    sink(&padded, sizeof padded);
    check("written", 1);
    return done();
}
