/* A thread with a descriptor table of its own: refused by name. */
#define _GNU_SOURCE
#include "guest.h"
#include <sched.h>

static int ends(void *p) {
    (void)p;
    for (;;) syscall(SYS_exit, 0);
}

int main(void) {
    static char stack[65536] __attribute__((aligned(64)));
    puts("before");
    fflush(stdout);
    check("made", clone(ends, stack + sizeof stack, CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD, 0) > 0);
    return done();
}
