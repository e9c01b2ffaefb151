/* What another program finds of the one before it (execve(2)): descriptors, directory, mask of files and of signals, what
 * is ignored, what is pending, timers, limits, the process; and what it does not: handlers, descriptors to be closed,
 * memory. The guest executes itself, then itself by its descriptor. */
#define _GNU_SOURCE
#include "guest.h"
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>

static int store = 1;
static void handler(int s) { (void)s; }

static void second(char **argv) {
    struct sigaction a;
    sigset_t mask, pending;
    struct itimerval left;
    struct rlimit limit;
    char dir[4096], text[8] = "";
    stack_t alt;
    check("same process", getpid() == atoi(argv[2]));
    check("fresh memory", store == 1);
    check("descriptor kept", pread(20, text, 5, 0) == 5 && !strcmp(text, "kept\n"));
    check("descriptor closed", fcntl(21, F_GETFD) == -1 && errno == EBADF);
    check("nothing new open", fcntl(22, F_GETFD) == -1 && fcntl(900, F_GETFD) == -1);
    check("directory", getcwd(dir, sizeof dir) && !strcmp(strrchr(dir, '/'), "/below"));
    check("umask", umask(022) == 027);
    sigprocmask(SIG_SETMASK, 0, &mask);
    check("mask", sigismember(&mask, SIGUSR1) && sigismember(&mask, SIGSEGV) && !sigismember(&mask, SIGUSR2));
    sigpending(&pending);
    check("pending", sigismember(&pending, SIGUSR1) && !sigismember(&pending, SIGUSR2));
    sigaction(SIGHUP, 0, &a);
    check("ignored", a.sa_handler == SIG_IGN);
    sigaction(SIGFPE, 0, &a);
    check("fault ignored", a.sa_handler == SIG_IGN);
    sigaction(SIGUSR2, 0, &a);
    check("handler gone", a.sa_handler == SIG_DFL);
    check("no stack", sigaltstack(0, &alt) == 0 && alt.ss_flags == SS_DISABLE);
    check("timer", getitimer(ITIMER_REAL, &left) == 0 && left.it_value.tv_sec > 900 && left.it_value.tv_sec <= 1000);
    check("limit", getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == 1000);
    check("environment", !strcmp(getenv("ONE"), "1") && !getenv("HOME"));
    check("counter", clock() >= 0 && syscall(SYS_getppid) > 0);
}

int main(int argc, char **argv) {
    char number[16], *env[] = {"ONE=1", 0};
    static char alternate[65536];
    if (argc > 3) {
        puts("third");
        return done();
    }
    if (argc > 2) {
        second(argv);
        if (fflush(stdout) || guest_failed) return 1;
        int fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
        char *next[] = {"guest", "by descriptor", "", "x", 0};
        syscall(SYS_execveat, fd, "", next, env, AT_EMPTY_PATH);
        return 2;
    }
    store = 2;
    FILE *f = fopen("file", "w+");
    need("file", f && fputs("kept\n", f) >= 0 && fflush(f) == 0);
    need("descriptors", dup2(fileno(f), 20) == 20 && dup3(20, 21, O_CLOEXEC) == 21 && fclose(f) == 0);
    need("directory", mkdir("below", 0755) == 0 && chdir("below") == 0);
    umask(027);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGSEGV);
    sigprocmask(SIG_BLOCK, &set, 0);
    raise(SIGUSR1);
    signal(SIGHUP, SIG_IGN);
    signal(SIGFPE, SIG_IGN);
    signal(SIGUSR2, handler);
    sigaltstack(&(stack_t){.ss_sp = alternate, .ss_size = sizeof alternate}, 0);
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {1000, 0}}, 0);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 1000;
    setrlimit(RLIMIT_NOFILE, &limit);
    snprintf(number, sizeof number, "%d", getpid());
    char *next[] = {"guest", "again", number, 0};
    execve("/proc/self/exe", next, env);
    return 3;
}
