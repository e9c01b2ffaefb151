/* Processes that share memory and are ended by signals, while they wait and while they make calls: the others go on. */
#include "guest.h"
#include <stdatomic.h>
#include <sys/wait.h>

static atomic_int *s;

enum { CALLS, WAITS };

static void ended_by(int sig, int does) {
    int status, before = atomic_load(s);
    pid_t child = fork();
    if (child == 0) {
        atomic_fetch_add(s, 1);
        while (does == WAITS) pause();
        for (;;) {
            atomic_fetch_add(s + 1, 1);
            usleep(100);
        }
    }
    while (atomic_load(s) == before) usleep(1000);
    need("kill", kill(child, sig) == 0);
    need("wait", waitpid(child, &status, 0) == child);
    printf("%d ended by %d\n", atomic_load(s), WIFSIGNALED(status) ? WTERMSIG(status) : -1);
    sink(s, 2 * sizeof *s);
}

int main(void) {
    s = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", s != MAP_FAILED);
    fflush(stdout);
    ended_by(SIGTERM, WAITS);
    fflush(stdout);
    ended_by(SIGKILL, WAITS);
    fflush(stdout);
    ended_by(SIGTERM, CALLS);
    fflush(stdout);
    ended_by(SIGINT, CALLS);
    return done();
}
