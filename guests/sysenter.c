/* Instructions that enter or inspect the kernel and fault in 64-bit user mode: hlt, rdmsr, in, sysexit; each SIGSEGV. */
#include "guest.h"
#include <setjmp.h>

static sigjmp_buf back;
static void on(int s) { siglongjmp(back, s); }

#define FAULTS(insn) ({ int s = sigsetjmp(back, 1); if (!s) __asm__ volatile(insn : : "c"(0), "d"(0) : "rax", "memory"); s; })

int main(void) {
    signal(SIGSEGV, on), signal(SIGILL, on);
    check("hlt", FAULTS("hlt") == SIGSEGV);
    check("rdmsr", FAULTS("rdmsr") == SIGSEGV);
    check("in", FAULTS("inb %%dx, %%al") == SIGSEGV);
    check("cli", FAULTS("cli") == SIGSEGV);
    check("ud2", FAULTS("ud2") == SIGILL);
    return done();
}
