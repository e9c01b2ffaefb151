/* Alternate stacks: a handler runs there, sees SS_ONSTACK, may not replace it; a stack overflow is survived on it. */
#include "guest.h"
#include <setjmp.h>

static char stack[65536] __attribute__((aligned(16)));
static sigjmp_buf back;
static volatile int inside, onstack, eperm, overflows;

static void on(int s) {
    char here;
    stack_t old, other = {.ss_sp = stack, .ss_size = sizeof stack};
    inside = &here >= stack && &here < stack + sizeof stack;
    sigaltstack(0, &old);
    onstack = old.ss_flags & SS_ONSTACK;
    eperm = sigaltstack(&other, 0) == -1 && errno == EPERM;
    if (s == SIGSEGV) overflows++, siglongjmp(back, 1);
}
static int recurse(volatile char *p) { volatile char f[10000]; f[0] = p ? *p : 1; return recurse(f) + f[0]; }

int main(void) {
    stack_t s = {.ss_sp = stack, .ss_size = sizeof stack}, none = {.ss_flags = SS_DISABLE};
    check("set", sigaltstack(&s, 0) == 0);
    struct sigaction a = {.sa_handler = on, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &a, 0), sigaction(SIGSEGV, &a, 0);
    raise(SIGUSR1);
    check("on it", inside && onstack && eperm);
    for (int i = 0; i < 2; i++)
        if (!sigsetjmp(back, 1)) recurse(0);
    check("overflow survived twice", overflows == 2 && inside);
    check("off it", sigaltstack(0, &s) == 0 && !(s.ss_flags & SS_ONSTACK));
    check("disabled", sigaltstack(&none, 0) == 0);
    raise(SIGUSR1);
    check("handler on the normal stack", !inside);
    check("too small", sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = 100}, 0) == -1 && errno == ENOMEM);
    return done();
}
