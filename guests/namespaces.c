/* What a program asks clone(2) for and does without: namespaces of its own, as browsers' sandboxes do. It must hear that it has
 * none. Also flags that contradict each other, and those that change nothing here. */
#define _GNU_SOURCE
#include "guest.h"
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static long child_with(unsigned long flags) {
    int status = 0;
    long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(30);
    if (child > 0) need("its end", waitpid((pid_t)child, &status, 0) == child && WEXITSTATUS(status) == 30);
    return child;
}

int main(void) {
    const unsigned long kinds[] = {CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET | CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUTS};
    const unsigned long never[] = {CLONE_SIGHAND, CLONE_THREAD, CLONE_FS | CLONE_NEWNS, CLONE_FS | CLONE_NEWUSER, 0xffffffff};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) answer("a namespace of its own", child_with(kinds[i]) > 0);
    for (unsigned i = 0; i < sizeof never / sizeof *never; i++) check("a contradiction", child_with(never[i]) == -1 && errno == EINVAL);
    check("neither traced nor alone with its disk", child_with(CLONE_UNTRACED | CLONE_IO) > 0);
    check("a child", child_with(0) > 0);
    return done();
}
