/* A thread with a descriptor table of its own: refused by name. */
#include "guest.h"
#include <sched.h>
#include <linux/sched.h>

int main(void) {
    static char stack[65536];
    puts("before");
    fflush(stdout);
    struct clone_args a = {.flags = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD, .stack = (uint64_t)stack, .stack_size = sizeof stack};
    long r = syscall(SYS_clone3, &a, sizeof a);
    if (r == 0)
        for (;;) syscall(SYS_exit, 0);
    check("made", r > 0);
    return done();
}
