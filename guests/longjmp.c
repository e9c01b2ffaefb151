/* setjmp and longjmp over many frames, with system calls between; values of volatile locals stay. */
#include "guest.h"
#include <setjmp.h>

static jmp_buf top;
static void down(int n) { if (n == 0) longjmp(top, 5); getppid(); down(n - 1); }

int main(void) {
    volatile int rounds = 0;
    int got = setjmp(top);
    if (got) rounds++;
    if (rounds < 100) down(rounds % 50);
    printf("%d %d\n", got, rounds);
    sink(&top, sizeof top);
    return done();
}
