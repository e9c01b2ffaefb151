/* A second process, made the way named: fork, vfork, spawn, system, popen, or a raw clone3. */
#include "guest.h"
#include <linux/sched.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

/* A child of vfork that has not become another program makes one of its own. */
static int nested(char *cmd[]) {
    int status = -1;
    pid_t p = vfork();
    if (p == 0) {
        pid_t inner;
        if (posix_spawn(&inner, cmd[0], 0, 0, cmd, environ) != 0 || waitpid(inner, &status, 0) != inner) _exit(5);
        _exit(WEXITSTATUS(status) + 3);
    }
    check("waited", waitpid(p, &status, 0) == p && WEXITSTATUS(status) == 3);
    return done();
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "fork";
    char *cmd[] = {"/bin/true", 0};
    int status = -1;
    pid_t p = -1;
    printf("before %s\n", how);
    fflush(stdout);
    if (!strcmp(how, "nested")) return nested(cmd);
    if (!strcmp(how, "fork") && !(p = fork())) _exit(0);
    if (!strcmp(how, "vfork") && !(p = vfork())) _exit(0);
    if (!strcmp(how, "spawn")) need("spawn", posix_spawn(&p, cmd[0], 0, 0, cmd, environ) == 0);
    if (!strcmp(how, "clone3") && !(p = syscall(SYS_clone3, &(struct clone_args){.exit_signal = SIGCHLD}, sizeof(struct clone_args)))) _exit(0);
    if (!strcmp(how, "system")) return status = system("exit 3"), check("system", WEXITSTATUS(status) == 3), done();
    if (!strcmp(how, "popen")) { FILE *f = popen("echo from the child", "r"); char b[64] = {0}; check("popen", f && fgets(b, 64, f) && pclose(f) == 0); return done(); }
    check("waited", waitpid(p, &status, 0) == p && status == 0);
    return done();
}
