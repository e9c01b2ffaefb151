/* A SIGSEGV handler that leaves by siglongjmp, a thousand times: the mask and the stack must come back each time. */
#include "guest.h"
#include <setjmp.h>

static sigjmp_buf back;
static void on(int s, siginfo_t *i, void *c) { (void)s, (void)c; siglongjmp(back, 1 + ((uintptr_t)i->si_addr & 0xff)); }

int main(void) {
    struct sigaction a = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &a, 0);
    volatile long sum = 0;
    for (volatile int i = 0; i < 1000; i++) {
        int got = sigsetjmp(back, 1);
        if (!got) *(volatile char *)(0x7f00dead0000 + i % 200) = 1;
        sum += got;
        getppid();
    }
    printf("sum %ld\n", sum);
    return done();
}
