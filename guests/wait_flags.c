/* What wait(2) is asked for, who is waited for, orphans and sessions. */
#define _GNU_SOURCE
#include "guest.h"
#include <sys/wait.h>

static pid_t forked(void) {
    pid_t pid = fork();
    need("fork", pid >= 0);
    return pid;
}

static pid_t sleeper(void) {
    pid_t pid = forked();
    if (pid == 0)
        for (;;) pause();
    return pid;
}

static volatile sig_atomic_t heard;
static void hear(int s) { heard += s == SIGCHLD; }

static void stops(void) {
    int status;
    siginfo_t i;
    struct sigaction on = {.sa_handler = hear, .sa_flags = SA_NOCLDSTOP | SA_RESTART};
    need("sigaction", sigaction(SIGCHLD, &on, NULL) == 0);
    pid_t pid = sleeper();
    check("nothing yet", waitpid(pid, &status, WNOHANG | WUNTRACED | WCONTINUED) == 0);
    kill(pid, SIGSTOP);
    check("it is stopped", waitid(P_PID, (id_t)pid, &i, WSTOPPED | WNOWAIT) == 0 && i.si_code == CLD_STOPPED && i.si_status == SIGSTOP);
    check("told again", waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    check("and once", waitpid(pid, &status, WUNTRACED | WNOHANG) == 0);
    kill(pid, SIGCONT);
    check("it goes on", waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
    check("no word of it", heard == 0);
    kill(pid, SIGTERM);
    check("its end stays", waitid(P_PID, (id_t)pid, &i, WEXITED | WNOWAIT) == 0 && i.si_code == CLD_KILLED && i.si_pid == pid);
    check("until it is taken", waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    check("a word of that", heard == 1);
    check("nobody is left", waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
}

static void groups(void) {
    int status, leader[2];
    pid_t pid = sleeper(), other = sleeper();
    check("a group of its own", setpgid(pid, pid) == 0 && getpgid(pid) == pid);
    check("another in it", setpgid(other, pid) == 0);
    kill(-pid, SIGUSR1);
    for (int c = 0; c < 2; c++) leader[c] = waitpid(-pid, &status, 0), check("one of the group", WTERMSIG(status) == SIGUSR1);
    check("both of them", leader[0] + leader[1] == pid + other);
    check("none of ours", waitpid(0, &status, WNOHANG) == -1 && errno == ECHILD);
    pid = (pid_t)syscall(SYS_clone, 0, 0, 0, 0, 0);
    if (pid == 0) _exit(6);
    check("without a signal", waitpid(-1, &status, 0) == -1 && errno == ECHILD);
    check("asked for by name", waitpid(-1, &status, __WCLONE) == pid && WEXITSTATUS(status) == 6);
    signal(SIGUSR2, SIG_IGN);
    pid = (pid_t)syscall(SYS_clone, SIGUSR2, 0, 0, 0, 0);
    if (pid == 0) _exit(7);
    check("whoever it is", waitpid(-1, &status, __WALL) == pid && WEXITSTATUS(status) == 7);
}

static void unwanted(void) {
    int status;
    struct sigaction on = {.sa_handler = hear, .sa_flags = SA_NOCLDWAIT};
    for (int way = 0; way < 2; way++) {
        if (way) on = (struct sigaction){.sa_handler = SIG_IGN};
        need("sigaction", sigaction(SIGCHLD, &on, NULL) == 0);
        if (forked() == 0) _exit(1);
        check("nobody wants to know", waitpid(-1, &status, 0) == -1 && errno == ECHILD);
    }
    signal(SIGCHLD, SIG_DFL);
}

static void orphans(void) {
    int status, to[2];
    char right = 0;
    need("pipe", pipe(to) == 0);
    pid_t pid = forked();
    if (pid == 0) {
        pid_t middle = getpid();
        if (forked()) _exit(4);
        while (getppid() == middle) usleep(1000);
        need("write", write(to[1], "y", 1) == 1);
        _exit(0);
    }
    check("its parent ended", waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 4);
    check("somebody else has its child", read(to[0], &right, 1) == 1 && right == 'y');
    check("and we have none", waitpid(-1, &status, 0) == -1 && errno == ECHILD);
}

static void sessions(void) {
    int status, go[2];
    need("pipe", pipe(go) == 0);
    pid_t pid = forked();
    if (pid == 0) {
        pid_t own = getpid();
        int right = setsid() == own && getsid(0) == own && getpgrp() == own && setsid() == -1 && errno == EPERM;
        right &= setpgid(0, 0) == -1 && errno == EPERM;
        need("write", write(go[1], "x", 1) == 1);
        for (int i = 0; i < 100; i++) usleep(1000);
        _exit(right ? 0 : 1);
    }
    char c;
    need("read", read(go[0], &c, 1) == 1);
    check("in another session", getsid(pid) == pid);
    check("beyond reach", setpgid(pid, getpgrp()) == -1 && errno == EPERM);
    check("a session of its own", waitpid(pid, &status, 0) == pid && status == 0);
    pid = vfork();
    if (pid == 0) execl("/bin/sleep", "sleep", "0.1", (char *)NULL), _exit(127);
    check("a program by now", setpgid(pid, pid) == -1 && errno == EACCES);
    check("it ended", waitpid(pid, &status, 0) == pid && status == 0);
}

int main(void) {
    stops();
    groups();
    unwanted();
    orphans();
    sessions();
    return done();
}
