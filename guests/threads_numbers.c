/* What a runtime asks about a thread by its number: its stack, priority, affinity, limits and clock. kill(2) takes it for its process. */
#define _GNU_SOURCE
#include "guest.h"
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

static void ask(const char *who) {
    pthread_attr_t attr;
    void *stack;
    size_t bytes;
    struct sched_param p;
    struct rlimit limit;
    cpu_set_t set;
    clockid_t clock;
    struct timespec used;
    int policy, tid = (int)syscall(SYS_gettid);
    printf("%s\n", who);
    check("stack", pthread_getattr_np(pthread_self(), &attr) == 0 && pthread_attr_getstack(&attr, &stack, &bytes) == 0 && bytes > 4096 &&
                       (char *)&attr > (char *)stack && (char *)&attr < (char *)stack + bytes);
    check("policy", pthread_getschedparam(pthread_self(), &policy, &p) == 0 && policy == sched_getscheduler(0));
    check("affinity", pthread_getaffinity_np(pthread_self(), sizeof set, &set) == 0 && CPU_COUNT(&set) > 0);
    errno = 0;
    check("priority", getpriority(PRIO_PROCESS, (id_t)tid) == getpriority(PRIO_PROCESS, 0) && !errno);
    check("limit", prlimit(tid, RLIMIT_NOFILE, 0, &limit) == 0);
    check("clock", pthread_getcpuclockid(pthread_self(), &clock) == 0 && clock_gettime(clock, &used) == 0);
    sink(&used, sizeof used);
}

static volatile sig_atomic_t handled;

static void count(int s) {
    (void)s;
    handled++;
}

static void *other(void *p) {
    int tid = (int)syscall(SYS_gettid);
    ask("another");
    signal(SIGUSR1, count);
    check("its process", kill(tid, 0) == 0 && kill(tid, SIGUSR1) == 0 && sigqueue(tid, SIGUSR1, (union sigval){0}) == 0 && handled == 2);
    check("nobody", sched_getscheduler(0x7fffffff) == -1 && errno == ESRCH);
    return p;
}

int main(void) {
    pthread_t t;
    ask("the first");
    need("pthread_create", pthread_create(&t, 0, other, 0) == 0);
    check("joined", pthread_join(t, 0) == 0);
    return done();
}
