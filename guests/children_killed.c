/* Children that are killed as soon as they have become another program. */
#define _GNU_SOURCE
#include "guest.h"
#include <sys/wait.h>

int main(void) {
    int killed = 0, n = 12;
    for (int i = 0; i < n; i++) {
        int status = 0, ends[2];
        char none;
        need("pipe2", pipe2(ends, O_CLOEXEC) == 0);
        pid_t pid = fork();
        need("fork", pid >= 0);
        if (pid == 0) {
            execl("/bin/sleep", "sleep", "1000", (char *)0);
            _exit(127);
        }
        close(ends[1]);
        need("read", read(ends[0], &none, 1) == 0);
        close(ends[0]);
        nanosleep(&(struct timespec){0, i * 1000000L}, 0);
        need("kill", kill(pid, SIGKILL) == 0);
        need("waitpid", waitpid(pid, &status, 0) == pid);
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    }
    check("each of them", killed == n);
    return done();
}
