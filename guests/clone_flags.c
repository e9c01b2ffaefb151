/* Children that no process of a protected program can have: refused by the name of the flag. */
#define _GNU_SOURCE
#include "guest.h"
#include <linux/sched.h>
#include <sched.h>
#include <sys/wait.h>

static const struct {
    const char *name;
    unsigned long flags;
} wanted[] = {
    {"parent", CLONE_PARENT},
    {"files", CLONE_FILES},
    {"vfork", CLONE_VFORK}, /* without CLONE_VM */
};

static long copy(unsigned long flags, int three) {
    struct clone_args args = {.flags = flags, .exit_signal = SIGCHLD};
    long pid = three ? syscall(SYS_clone3, &args, sizeof args) : syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (!pid) _exit(0);
    return pid;
}

int main(int argc, char **argv) {
    unsigned long flags = 0;
    for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (argc > 1 && !strcmp(argv[1], wanted[i].name)) flags = wanted[i].flags;
    puts("before");
    fflush(stdout);
    int children = 1;
    if (flags == CLONE_PARENT) { /* the child of this one's child is its own */
        pid_t between = fork();
        if (!between) _exit(copy(flags, argc > 2) < 0);
        children++;
    } else {
        check("made", copy(flags, argc > 2) > 0);
    }
    for (int status; children; children--) check("ended well", wait(&status) > 0 && status == 0);
    return done();
}
