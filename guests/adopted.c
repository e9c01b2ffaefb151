/* A parent that may be killed and made again while its children live: it knows each by its number, hears of each end, and waits
 * for each. Its own number goes to the file `number`. */
#include "guest.h"
#include <sys/wait.h>

enum { EARLY, LONG, TERMED, GROUPED, KILLED, CHILDREN };
static volatile pid_t child[CHILDREN];
static volatile sig_atomic_t heard, strangers;
static int asked[CHILDREN][2]; /* pipes */

static void on_end(int s, siginfo_t *i, void *context) {
    (void)s, (void)context;
    int known = 0;
    for (int c = 0; c < CHILDREN; c++) known |= i->si_pid == child[c];
    heard++;
    strangers += !known;
}

/* A sleep that signals do not cut short. */
static void rest(int milliseconds) {
    struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000l};
    while (nanosleep(&t, &t) && errno == EINTR) {}
}

/* Until the parent asks, or is not there to do so. */
static void await(int c) {
    char byte;
    alarm(40);
    need("read", read(asked[c][0], &byte, 1) == 1);
}

static void ask(int c) { need("write", write(asked[c][1], "", 1) == 1); }

static void live(int c, pid_t parent) {
    switch (c) {
    case EARLY: _exit(5);
    case LONG: await(LONG); _exit(getppid() == parent ? 7 : 8);
    case GROUPED: setpgid(0, 0), await(GROUPED), _exit(9);
    default:
        for (;;) pause();
    }
}

int main(void) {
    const pid_t parent = getpid();
    int status;
    siginfo_t info = {0};
    struct sigaction on = {.sa_sigaction = on_end, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigset_t chld, before;
    sigemptyset(&chld), sigaddset(&chld, SIGCHLD);
    need("sigprocmask", sigprocmask(SIG_BLOCK, &chld, &before) == 0);
    need("sigaction", sigaction(SIGCHLD, &on, NULL) == 0);
    need("pipe", pipe(asked[LONG]) == 0 && pipe(asked[GROUPED]) == 0);
    for (int c = 0; c < CHILDREN; c++) {
        pid_t pid = fork();
        need("fork", pid >= 0);
        if (pid == 0) sigprocmask(SIG_SETMASK, &before, NULL), live(c, parent);
        child[c] = pid;
    }
    need("sigprocmask", sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    FILE *number = fopen("number", "w");
    need("number", number && fprintf(number, "%d", parent) > 0 && fclose(number) == 0);
    for (int i = 0; i < 28; i++) rest(50); /* struck in here */
    check("the same number", getpid() == parent);
    check("one had ended before", waitpid(child[EARLY], &status, 0) == child[EARLY] && WEXITSTATUS(status) == 5);
    check("nobody else has", waitpid(-1, &status, WNOHANG) == 0);
    check("asked to end", kill(child[TERMED], SIGTERM) == 0);
    check("seen to end", waitid(P_PID, child[TERMED], &info, WEXITED | WNOWAIT) == 0 && info.si_pid == child[TERMED]);
    check("by that signal", waitpid(child[TERMED], &status, 0) == child[TERMED] && WTERMSIG(status) == SIGTERM);
    check("killed", kill(child[KILLED], SIGKILL) == 0 && waitpid(child[KILLED], &status, 0) == child[KILLED] && WTERMSIG(status) == SIGKILL);
    ask(GROUPED);
    check("a process group", waitpid(-child[GROUPED], &status, 0) == child[GROUPED] && WEXITSTATUS(status) == 9);
    ask(LONG);
    check("whoever is left", wait(&status) == child[LONG] && WIFEXITED(status));
    check("its parent was the same", WEXITSTATUS(status) == 7);
    check("nobody is left", wait(&status) == -1 && errno == ECHILD);
    check("heard of ends", heard > 0);
    check("of no stranger's", strangers == 0);
    child[EARLY] = fork();
    need("fork", child[EARLY] >= 0);
    if (child[EARLY] == 0) _exit(3);
    check("a new one", waitpid(child[EARLY], &status, 0) == child[EARLY] && WEXITSTATUS(status) == 3);
    return done();
}
