/* A program that would rather have a namespace of its own, and does without where it may not: as browsers' sandboxes do. */
#define _GNU_SOURCE
#include "guest.h"
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static long own(unsigned long flags) {
    long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (child < 0 && errno == EPERM) child = fork();
    return child;
}

int main(void) {
    const unsigned long kinds[] = {CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET | CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUTS};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int status;
        long child = own(kinds[i]);
        if (child == 0) _exit(30 + (int)i);
        check("a child", child > 0 && waitpid((pid_t)child, &status, 0) == child && WEXITSTATUS(status) == 30 + (int)i);
    }
    return done();
}
