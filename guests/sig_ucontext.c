/* Handlers that edit the context: skip the faulting instruction, change a register, change the signal mask to return with. */
#include "guest.h"
#include <ucontext.h>

static volatile int faults;
static void on_fault(int s, siginfo_t *i, void *c) {
    (void)s, (void)i;
    ucontext_t *u = c;
    u->uc_mcontext.gregs[REG_RIP] += 3; /* mov (%rax),%ebx with a one-byte displacement below */
    u->uc_mcontext.gregs[REG_RBX] = 0x600d;
    faults++;
}
static void on_usr(int s, siginfo_t *i, void *c) {
    (void)s, (void)i;
    sigaddset(&((ucontext_t *)c)->uc_sigmask, SIGHUP);
}
static void on_trap(int s, siginfo_t *i, void *c) {
    (void)s, (void)i;
    ((ucontext_t *)c)->uc_mcontext.gregs[REG_RAX] = 4242;
}

int main(void) {
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &a, 0);
    long rbx;
    __asm__ volatile("movb $1, %%bl\n\t.byte 0x8b, 0x58, 0x00" : "=b"(rbx) : "a"(8) : "memory"); /* mov 0(%rax),%ebx */
    check("skipped, register set", faults == 1 && rbx == 0x600d);
    a.sa_sigaction = on_usr;
    sigaction(SIGUSR1, &a, 0);
    raise(SIGUSR1);
    sigset_t m;
    sigprocmask(SIG_BLOCK, 0, &m);
    check("mask changed by the return", sigismember(&m, SIGHUP) == 1);
    a.sa_sigaction = on_trap;
    sigaction(SIGTRAP, &a, 0);
    long rax;
    __asm__ volatile("int3" : "=a"(rax) : "a"(1));
    check("int3 returns behind itself", rax == 4242);
    return done();
}
