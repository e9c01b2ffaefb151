/* What a system call leaves alone: every general register but rax, rcx, r11; the flags; and what rcx and r11 then hold. */
#include "guest.h"

struct regs { uint64_t rbx, rdx, rsi, rdi, rbp, r8, r9, r10, r12, r13, r14, r15, rcx, r11, next, flags_before, flags_after; };

__attribute__((noinline)) static void take(struct regs *r) {
    __asm__ volatile(
        "push %%rbp\n\t" "push %0\n\t"
        "mov $0x101, %%rbx\n\t" "mov $0x102, %%rdx\n\t" "mov $0x103, %%rsi\n\t" "mov $0x104, %%rdi\n\t" "mov $0x105, %%rbp\n\t"
        "mov $0x106, %%r8\n\t" "mov $0x107, %%r9\n\t" "mov $0x108, %%r10\n\t" "mov $0x109, %%r12\n\t" "mov $0x10a, %%r13\n\t"
        "mov $0x10b, %%r14\n\t" "mov $0x10c, %%r15\n\t" "mov $110, %%eax\n\t"
        "stc\n\t" "pushfq\n\t" "syscall\n" "7:\tpushfq\n\t"
        "mov 16(%%rsp), %%rax\n\t" /* the struct, below the two sets of flags */
        "mov %%rbx, (%%rax)\n\t" "mov %%rdx, 8(%%rax)\n\t" "mov %%rsi, 16(%%rax)\n\t" "mov %%rdi, 24(%%rax)\n\t" "mov %%rbp, 32(%%rax)\n\t"
        "mov %%r8, 40(%%rax)\n\t" "mov %%r9, 48(%%rax)\n\t" "mov %%r10, 56(%%rax)\n\t" "mov %%r12, 64(%%rax)\n\t" "mov %%r13, 72(%%rax)\n\t"
        "mov %%r14, 80(%%rax)\n\t" "mov %%r15, 88(%%rax)\n\t" "mov %%rcx, 96(%%rax)\n\t" "mov %%r11, 104(%%rax)\n\t"
        "lea 7b(%%rip), %%rcx\n\t" "mov %%rcx, 112(%%rax)\n\t" "pop %%rcx\n\t" "mov %%rcx, 128(%%rax)\n\t"
        "pop %%rcx\n\t" "mov %%rcx, 120(%%rax)\n\t" "pop %%rcx\n\t" "pop %%rbp"
        : : "a"(r) : "rbx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rcx", "memory", "cc");
}

int main(void) {
    struct regs r = {0};
    take(&r);
    check("registers", r.rbx == 0x101 && r.rdx == 0x102 && r.rsi == 0x103 && r.rdi == 0x104 && r.rbp == 0x105 && r.r8 == 0x106 &&
          r.r9 == 0x107 && r.r10 == 0x108 && r.r12 == 0x109 && r.r13 == 0x10a && r.r14 == 0x10b && r.r15 == 0x10c);
    check("flags", r.flags_before == r.flags_after && (r.flags_after & 1));
    check("rcx is the return address", r.rcx == r.next);
    check("r11 is the flags", r.r11 == r.flags_before);
    return done();
}
