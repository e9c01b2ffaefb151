/* swapcontext: two coroutines on own stacks, which save and restore the signal mask by system call at each switch. */
#include "guest.h"
#include <ucontext.h>

static ucontext_t home, a, b;
static char sa[65536], sb[65536];
static void run(int me) {
    for (int i = 0; i < 100; i++) {
        if (i % 25 == 0) printf("%c%d ", me, i), fflush(stdout);
        swapcontext(me == 'a' ? &a : &b, me == 'a' ? &b : &a);
    }
}

int main(void) {
    getcontext(&a), getcontext(&b);
    a.uc_stack.ss_sp = sa, a.uc_stack.ss_size = sizeof sa, a.uc_link = &home;
    b.uc_stack.ss_sp = sb, b.uc_stack.ss_size = sizeof sb, b.uc_link = &home;
    makecontext(&a, (void (*)(void))run, 1, 'a'), makecontext(&b, (void (*)(void))run, 1, 'b');
    swapcontext(&home, &a);
    puts("home");
    return done();
}
