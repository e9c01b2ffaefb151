/* Arithmetic flags, the direction flag too, survive system calls, rdtsc and cpuid: each of the status flags in turn. */
#include "guest.h"

/* Pushes below the red zone of the compiler's frame, sets the flags asked for, runs the instruction, reads them back. */
#define AFTER(insn, number, want) ({ uint64_t got; \
    __asm__ volatile("sub $128, %%rsp\n\tmov %2, %%r12\n\tpush %%r12\n\tmov %1, %%eax\n\tpopfq\n\t" insn "\n\tpushfq\n\tpop %0\n\tcld\n\tadd $128, %%rsp" \
                     : "=D"(got) : "i"(number), "r"((uint64_t)(want)) : "rax", "rbx", "rcx", "rdx", "rsi", "r11", "r12", "memory", "cc"); got; })

int main(void) {
    static const int bits[] = {0, 1 << 0, 1 << 2, 1 << 4, 1 << 6, 1 << 7, 1 << 10, 1 << 11, 0xcd5};
    int call = 1, tsc = 1, id = 1;
    for (unsigned i = 0; i < sizeof bits / sizeof *bits; i++) {
        uint64_t want = 0x202 | bits[i];
        call &= AFTER("syscall", 110, want) == want;
        tsc &= AFTER("rdtsc", 0, want) == want;
        id &= AFTER("cpuid", 1, want) == want;
    }
    check("syscall", call);
    check("rdtsc", tsc);
    check("cpuid", id);
    return done();
}
