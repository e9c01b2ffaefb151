/* The red zone: 128 bytes below the stack pointer hold live data across a system call, rdtsc and cpuid. */
#include "guest.h"

#define FILL(at) "movq %%r12, -" #at "(%%rsp)\n\t"
#define TEST(at) "cmpq %%r12, -" #at "(%%rsp)\n\tjne 1f\n\t"
#define EACH(x) x(8) x(16) x(24) x(32) x(40) x(48) x(56) x(64) x(72) x(80) x(88) x(96) x(104) x(112) x(120) x(128)

/* The stack pointer is first moved down: the compiler owns the 128 bytes below its own. */
#define KEPT(insn, number) ({ long bad; \
    __asm__ volatile("subq $256, %%rsp\n\tmovq $0x5a5a1234, %%r12\n\t" EACH(FILL) "movl $" #number ", %%eax\n\t" insn "\n\t" \
                     EACH(TEST) "movl $0, %%edi\n\tjmp 2f\n1:\tmovl $1, %%edi\n2:\taddq $256, %%rsp" \
                     : "=D"(bad) : : "rax", "rbx", "rcx", "rdx", "r11", "r12", "memory"); !bad; })

int main(void) {
    check("syscall", KEPT("syscall", 110));
    check("syscall that fails", KEPT("movl $-1, %%edi\n\tsyscall", 3));
    check("rdtsc", KEPT("rdtsc", 0));
    check("rdtscp", KEPT("rdtscp", 0));
    check("cpuid", KEPT("cpuid", 0));
    check("two calls", KEPT("syscall\n\tmovl $102, %%eax\n\tsyscall", 110));
    return done();
}
