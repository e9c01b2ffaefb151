/* The x87 unit: 80-bit long double, a stack left loaded across a system call, the control and status words. */
#include "guest.h"
#include <math.h>

int main(void) {
    long double s = 0, third = 1.0L / 3;
    for (int i = 1; i < 100000; i++) s += sinl(i) / i;
    printf("%La %La\n", s, third);
    double a, b;
    long pid;
    unsigned short cw = 0x27f, back = 0; /* double precision */
    __asm__ volatile("fld1\n\tfldpi\n\tmov $110, %%eax\n\tsyscall\n\tfstpl %0\n\tfstpl %1" : "=m"(a), "=m"(b), "=&a"(pid) : : "rcx", "r11", "st", "st(1)", "memory");
    printf("%a %a\n", a, b);
    __asm__ volatile("fldcw %1\n\tmov $110, %%eax\n\tsyscall\n\tfnstcw %0" : "=m"(back) : "m"(cw) : "rax", "rcx", "r11", "memory");
    printf("%x %La\n", back, third / 7);
    return done();
}
