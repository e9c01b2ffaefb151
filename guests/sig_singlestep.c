/* A program that single-steps itself with the trap flag: SIGTRAP with TRAP_TRACE after each instruction. */
#include "guest.h"

static volatile int traps;
static void on(int s, siginfo_t *i, void *c) { (void)s, (void)c; traps += i->si_code == TRAP_TRACE; }

int main(void) {
    struct sigaction a = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &a, 0);
    __asm__ volatile("sub $128, %%rsp\n\tpushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\tnop\n\tnop\n\tnop\n\tpushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq\n\tadd $128, %%rsp" : : : "memory", "cc");
    printf("%d traps\n", traps);
    return done();
}
