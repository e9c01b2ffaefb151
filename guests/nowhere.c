/* Handlers at addresses that no processor goes to, and returns from handlers that lead there or bring what no processor
 * takes: each is a SIGSEGV, whose handler runs if it has a sound one. */
#include "guest.h"
#include <setjmp.h>
#include <ucontext.h>

#define NOWHERE 0x00dead0000000000ull

static sigjmp_buf back;
static volatile int how;

static void segv(int s, siginfo_t *i, void *u) {
    (void)s, (void)u;
    siglongjmp(back, i->si_code == SI_KERNEL ? 1 : 2);
}

static void usr1(int s, siginfo_t *i, void *u) {
    (void)s, (void)i;
    mcontext_t *m = &((ucontext_t *)u)->uc_mcontext;
    if (how == 0) m->gregs[REG_RIP] = (greg_t)NOWHERE;
    if (how == 1) m->fpregs = (void *)8;
    if (how == 2) m->fpregs->mxcsr = 0xffffffff;
    if (how == 3) m->gregs[REG_RIP] = 8;
}

int main(int argc, char **argv) {
    static char stack[65536];
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, 0);
    struct sigaction a = {.sa_sigaction = segv, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &a, 0);
    a.sa_sigaction = usr1;
    sigaction(SIGUSR1, &a, 0);
    for (how = 0; how < 4; how++) {
        int came = sigsetjmp(back, 1);
        if (!came) raise(SIGUSR1);
        printf("return %d: %d\n", how, came);
    }
    a.sa_sigaction = (void *)NOWHERE;
    sigaction(SIGUSR1, &a, 0);
    int came = sigsetjmp(back, 1);
    if (!came) raise(SIGUSR1);
    printf("handler: %d\n", came);
    fflush(stdout);
    if (argc > 1) sigaction(SIGSEGV, &a, 0), raise(SIGSEGV);
    (void)argv;
    return done();
}
