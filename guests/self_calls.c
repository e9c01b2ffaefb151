/* What a process asks about itself, and waits for although it has nobody: children, limits, priorities, personality,
 * sessions, timers, its own memory. */
#include "guest.h"
#include <sched.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/wait.h>

int main(void) {
    int st = 5;
    siginfo_t i;
    memset(&i, 7, sizeof i);
    check("wait4", wait4(-1, &st, WNOHANG, 0) == -1 && errno == ECHILD && st == 5);
    check("waitid", waitid(P_ALL, 0, &i, WEXITED | WNOHANG) == -1 && errno == ECHILD);
    sink(&i, sizeof i);
    printf("personality %x\n", personality(0xffffffff));
    check("not randomised from now on", personality(ADDR_NO_RANDOMIZE) >= 0 && personality(0xffffffff) == ADDR_NO_RANDOMIZE);
    void *a = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sink(&a, sizeof a);
    struct sysinfo s;
    struct tms t;
    struct rusage u;
    check("sysinfo", sysinfo(&s) == 0 && s.totalram > 0);
    check("times", times(&t) != (clock_t)-1);
    check("rusage", getrusage(RUSAGE_SELF, &u) == 0 && getrusage(RUSAGE_CHILDREN, &u) == 0 && getrusage(RUSAGE_THREAD, &u) == 0);
    sink(&s, sizeof s), sink(&t, sizeof t), sink(&u, sizeof u);
    errno = 0;
    printf("priority %d\n", getpriority(PRIO_PROCESS, 0));
    int nicer = getpriority(PRIO_PROCESS, 0) + 3;
    if (nicer > 19) nicer = 19;
    check("nicer", nice(3) == nicer && getpriority(PRIO_PROCESS, getpid()) == nicer);
    check("scheduler", sched_getscheduler(0) == SCHED_OTHER && sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0}) == 0 && sched_getscheduler(getpid()) == SCHED_BATCH);
    struct rlimit l;
    check("core", getrlimit(RLIMIT_CORE, &l) == 0 && setrlimit(RLIMIT_CORE, &(struct rlimit){0, l.rlim_max}) == 0 && getrlimit(RLIMIT_CORE, &l) == 0 && l.rlim_cur == 0);
    check("no such limit", syscall(SYS_prlimit64, 0, 99, 0, &l) == -1 && errno == EINVAL);
    check("no such process", kill(2000000000, 0) == -1 && errno == ESRCH && getpgid(2000000000) == -1 && errno == ESRCH);
    check("itself", kill(getpid(), 0) == 0 && kill(0, 0) == 0);
    check("session", getsid(0) == getsid(getpid()) && getpgid(0) == getpgrp());
    timer_t id;
    struct sigevent e = {.sigev_notify = SIGEV_NONE};
    struct itimerspec v = {{0, 0}, {100, 0}}, w;
    check("timer", timer_create(CLOCK_MONOTONIC, &e, &id) == 0 && timer_settime(id, 0, &v, 0) == 0 && timer_gettime(id, &w) == 0 && w.it_value.tv_sec >= 10 && timer_getoverrun(id) == 0 && timer_delete(id) == 0);
    check("deleted", timer_gettime(id, &w) == -1 && errno == EINVAL);
    struct timespec res;
    check("resolution", clock_getres(CLOCK_MONOTONIC, &res) == 0 && res.tv_sec == 0);
    check("no such clock", syscall(SYS_clock_gettime, 99, &res) == -1 && errno == EINVAL);
    check("sleep until the past", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &(struct timespec){1, 0}, 0) == 0);
    check("yield", sched_yield() == 0);
    char host[65];
    check("host", gethostname(host, sizeof host) == 0);
    check("membarrier", syscall(SYS_membarrier, 0, 0, 0) >= 0);
    check("root stays", chdir("/") == 0 && umask(022) == umask(022));
    return done();
}
