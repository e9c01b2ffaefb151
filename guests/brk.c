/* The program break: growth in many steps, use, shrinking, growth again with zeroed pages. */
#include "guest.h"

int main(void) {
    puts("start"); /* stdio takes its buffer from the heap below, before it moves */
    char *base = sbrk(0);
    int ok = 1;
    for (int i = 1; i <= 300; i++) {
        char *p = sbrk(12345);
        ok &= p != (void *)-1;
        memset(p, i, 12345);
    }
    check("300 steps", ok);
    check("sum", (char *)sbrk(0) - base == 300 * 12345);
    check("content", base[0] == 1 && base[12345] == 2);
    base[100000] = 7;
    check("shrink", brk(base + 10) == 0 && sbrk(0) == base + 10);
    check("grow again", brk(base + 200000) == 0);
    check("zeroed", base[100000] == 0);
    check("raw call with 0", syscall(SYS_brk, 0) == (long)(base + 200000));
    check("refused, unchanged", syscall(SYS_brk, (long)-4096) == (long)(base + 200000));
    sink(&base, sizeof base);
    return done();
}
