/* A second process, made the way named: fork, vfork, spawn, system, popen, or a raw clone3. */
#include "guest.h"
#include <linux/sched.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

/* A child of vfork that has not become another program makes one of its own, which makes another one, and becomes one itself. */
static int nested(char *cmd[], int shared) {
    static volatile int seen;
    int status = -1;
    if (shared) need("mmap", mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    pid_t p = vfork();
    if (p == 0) {
        pid_t inner;
        if (posix_spawn(&inner, cmd[0], 0, 0, cmd, environ) != 0 || waitpid(inner, &status, 0) != inner) _exit(5);
        seen = WEXITSTATUS(status) + 3;
        if ((inner = vfork()) == 0) {
            pid_t innermost = vfork();
            if (innermost == 0) _exit(6);
            _exit(waitpid(innermost, &status, 0) == innermost ? WEXITSTATUS(status) + 1 : 8);
        }
        if (waitpid(inner, &status, 0) != inner) _exit(5);
        seen = seen * 100 + WEXITSTATUS(status);
        if ((inner = fork()) == 0) execv(cmd[0], cmd), _exit(4);
        execv(cmd[0], cmd);
        _exit(5);
    }
    check("waited", waitpid(p, &status, 0) == p && status == 0);
    check("what the child stored", seen == 307);
    check("no other child", waitpid(-1, &status, 0) == -1 && errno == ECHILD);
    return done();
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "fork";
    char *cmd[] = {"/bin/true", 0};
    int status = -1;
    pid_t p = -1;
    printf("before %s\n", how);
    fflush(stdout);
    if (!strncmp(how, "nested", 6)) return nested(cmd, how[6] != 0);
    if (!strcmp(how, "fork") && !(p = fork())) _exit(0);
    if (!strcmp(how, "vfork") && !(p = vfork())) _exit(0);
    if (!strcmp(how, "spawn")) need("spawn", posix_spawn(&p, cmd[0], 0, 0, cmd, environ) == 0);
    if (!strcmp(how, "clone3") && !(p = syscall(SYS_clone3, &(struct clone_args){.exit_signal = SIGCHLD}, sizeof(struct clone_args)))) _exit(0);
    if (!strcmp(how, "system")) return status = system("exit 3"), check("system", WEXITSTATUS(status) == 3), done();
    if (!strcmp(how, "popen")) { FILE *f = popen("echo from the child", "r"); char b[64] = {0}; check("popen", f && fgets(b, 64, f) && pclose(f) == 0); return done(); }
    check("waited", waitpid(p, &status, 0) == p && status == 0);
    return done();
}
