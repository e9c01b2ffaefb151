/* A program that changes its own code: an immediate in a function of its text, behind mprotect. */
#include "guest.h"

__attribute__((noinline, aligned(4096))) static int number(void) {
    int v;
    __asm__ volatile("movl $0x11223344, %0" : "=a"(v));
    return v;
}

int main(void) {
    unsigned char *p = (void *)number, *page = (void *)((uintptr_t)p & ~4095ul);
    printf("%x\n", number());
    need("mprotect", mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    while (memcmp(p, "\x44\x33\x22\x11", 4)) p++;
    memcpy(p, "\x88\x77\x66\x55", 4);
    printf("%x\n", number());
    need("mprotect", mprotect(page, 8192, PROT_READ | PROT_EXEC) == 0);
    check("getppid still works", getppid() > 0);
    return done();
}
