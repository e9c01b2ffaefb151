/* A signal at the parent's death (prctl(2), PR_SET_PDEATHSIG): handled, or one that kills; chosen after a fork, or between vfork and
 * exec, where it is the child's alone. Its parent ends by itself, and the first process waits until nobody has the pipe. */
#include "guest.h"
#include <sys/prctl.h>
#include <sys/wait.h>

static void heard(int s) {
    (void)s;
    _exit(write(STDOUT_FILENO, "heard\n", 6) != 6);
}

/* Longer than anybody would wait for it. */
static void stay(int ready) {
    need("ready", write(ready, "r", 1) == 1);
    sleep(60);
    need("left behind", 0);
}

static void middle(const char *how, char *self) {
    int ready[2], wanted = -1;
    char byte;
    need("pipe", pipe(ready) == 0);
    char number[16];
    snprintf(number, sizeof number, "%d", ready[1]);
    const int by_exec = how[0] == 'e';
    if ((by_exec ? vfork() : fork()) == 0) {
        if (how[0] == 'h') signal(SIGUSR1, heard);
        prctl(PR_SET_PDEATHSIG, how[0] == 'h' ? SIGUSR1 : SIGKILL);
        if (by_exec) execl(self, self, "stay", number, (char *)0);
        stay(ready[1]);
    }
    need("read", read(ready[0], &byte, 1) == 1);
    check("the parent's own", prctl(PR_GET_PDEATHSIG, &wanted) == 0 && wanted == 0);
    exit(done());
}

int main(int argc, char **argv) {
    int gone[2], status;
    char byte;
    if (argc > 2) stay(atoi(argv[2]));
    need("pipe", argc == 2 && pipe(gone) == 0);
    pid_t child = fork();
    if (child == 0) middle(argv[1], argv[0]);
    close(gone[1]);
    check("the parent", waitpid(child, &status, 0) == child && status == 0);
    check("nobody is left", read(gone[0], &byte, 1) == 0);
    return done();
}
