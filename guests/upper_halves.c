/* The upper halves of the vector registers are not in use after what has not used them: a function bound at its first call,
 * which saves and loads all of them, and a handler. Where they are, SSE instructions are slow (some 70 cycles each time). */
#include "guest.h"
#include <setjmp.h>
#include <stdlib.h>

static sigjmp_buf unknown;
static void not_known(int s) { siglongjmp(unknown, s); }
static void nothing(int s) { (void)s; }
__attribute__((noinline)) static int in_use(void) {
    unsigned a, d;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(1));
    return a >> 2 & 1;
}

int main(void) {
    int start = 0, bound = 0, handled = 0;
    signal(SIGSEGV, not_known);
    signal(SIGILL, not_known);
    signal(SIGUSR1, nothing);
    if (__builtin_cpu_supports("avx") && sigsetjmp(unknown, 1) == 0) {
        __asm__ volatile("vzeroupper" : : : "memory");
        start = in_use();
        start |= a64l("./0") == 0;
        bound = in_use();
        raise(SIGUSR1);
        handled = in_use();
    }
    check("start", !start);
    check("bound", !bound);
    check("handled", !handled);
    return done();
}
