/* The program's own use of the GS base: arch_prctl, and reads through it across system calls. */
#include "guest.h"
#include <asm/prctl.h>

int main(void) {
    static uint64_t block[2] = {0xfeedface, 0xcafe};
    uint64_t gs = 0, v = 0;
    puts("before");
    fflush(stdout);
    check("set", syscall(SYS_arch_prctl, ARCH_SET_GS, block) == 0);
    __asm__ volatile("mov %%gs:8, %0" : "=r"(v));
    check("read through", v == 0xcafe);
    getppid();
    __asm__ volatile("mov %%gs:0, %0" : "=r"(v));
    check("kept across a call", v == 0xfeedface);
    check("asks", syscall(SYS_arch_prctl, ARCH_GET_GS, &gs) == 0 && gs == (uintptr_t)block);
    return done();
}
