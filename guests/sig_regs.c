/* The context that a handler sees when a signal arrives in a system call: registers, stack pointer, next instruction. */
#include "guest.h"
#include <ucontext.h>

static greg_t seen[NGREG];
static void on(int s, siginfo_t *i, void *c) { (void)s, (void)i; memcpy(seen, ((ucontext_t *)c)->uc_mcontext.gregs, sizeof seen); }

int main(void) {
    struct sigaction a = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &a, 0);
    uint64_t next, sp;
    long pid = getpid();
    __asm__ volatile("mov $0x1111, %%r12\n\tmov $0x2222, %%r13\n\tmov $0x3333, %%r14\n\tmov $0x4444, %%r15\n\tmov $0x5555, %%r8\n\t"
                     "mov %%rsp, %1\n\tmov $62, %%eax\n\tsyscall\n1:\tlea 1b(%%rip), %0"
                     : "=r"(next), "=r"(sp) : "D"(pid), "S"(SIGUSR1) : "rax", "rcx", "r8", "r11", "r12", "r13", "r14", "r15", "memory");
    check("kept registers", seen[REG_R12] == 0x1111 && seen[REG_R13] == 0x2222 && seen[REG_R14] == 0x3333 && seen[REG_R15] == 0x4444);
    check("argument registers", seen[REG_RDI] == pid && seen[REG_RSI] == SIGUSR1 && seen[REG_R8] == 0x5555);
    check("result of the call", seen[REG_RAX] == 0);
    check("stack pointer", seen[REG_RSP] == (greg_t)sp);
    check("next instruction", seen[REG_RIP] == (greg_t)next);
    return done();
}
