/* A thread waits for a child while another one goes on: wait4, waitid with a cleared and with a dirty siginfo, with and without reaping. */
#include "guest.h"
#include <pthread.h>
#include <sys/wait.h>

struct wait {
    pid_t pid;
    int fill, flags, by_wait4;
};

static void *waits(void *v) {
    struct wait *w = v;
    int status = 0;
    if (w->by_wait4) return (void *)(long)(wait4(w->pid, &status, 0, 0) == w->pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    siginfo_t info;
    memset(&info, w->fill, sizeof info);
    if (waitid(P_PID, (id_t)w->pid, &info, WEXITED | w->flags)) return 0;
    int good = info.si_pid == w->pid && info.si_code == CLD_EXITED && info.si_status == 7 && info.si_signo == SIGCHLD;
    if (w->flags & WNOWAIT) good = good && waitpid(w->pid, &status, 0) == w->pid;
    return (void *)(long)good;
}

static int waited(struct wait w) {
    int go[2];
    char c = 'x';
    pthread_t t;
    void *good = 0;
    need("pipe", !pipe(go));
    w.pid = fork();
    need("fork", w.pid >= 0);
    if (!w.pid) _exit(read(go[0], &c, 1) == 1 ? 7 : 1);
    pthread_create(&t, 0, waits, &w);
    struct timespec ms = {0, 5000000};
    nanosleep(&ms, 0);
    need("write", write(go[1], &c, 1) == 1);
    pthread_join(t, &good);
    close(go[0]);
    close(go[1]);
    return good != 0;
}

int main(void) {
    check("wait4", waited((struct wait){.by_wait4 = 1}));
    check("waitid", waited((struct wait){0}));
    check("waitid into a dirty siginfo", waited((struct wait){.fill = 0xff}));
    check("waitid that leaves the child", waited((struct wait){.flags = WNOWAIT}));
    check("the same into a dirty siginfo", waited((struct wait){.fill = 0xff, .flags = WNOWAIT}));
    return done();
}
