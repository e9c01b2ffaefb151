/* A wild jump: into the middle of `mov eax, imm32`, whose immediate holds the bytes of a system call instruction. */
#include "guest.h"

__asm__(".pushsection .text\n"
        "hidden: mov $0xc3050f, %eax\n" /* 0f 05 c3: syscall; ret, for who enters one byte late */
        "ret\n"
        ".popsection");
extern char hidden[];

int main(void) {
    puts("before");
    fflush(stdout);
    long rc;
    __asm__ volatile("call *%1" : "=a"(rc) : "r"(hidden + 1), "a"(SYS_getppid) : "rcx", "r11", "memory");
    check("parent", rc == getppid());
    return done();
}
