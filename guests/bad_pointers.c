/* Calls whose result pointers lead nowhere: EFAULT, as the kernel says, also where somebody else answers in its place. */
#include "guest.h"
#include <sched.h>
#include <sys/time.h>
#include <sys/times.h>

static void refused(const char *what, long r) { check(what, r == -1 && errno == EFAULT); }

int main(void) {
    void *bad = (void *)8;
    refused("getcpu", syscall(SYS_getcpu, bad, 0, 0));
    refused("getcpu node", syscall(SYS_getcpu, 0, bad, 0));
    refused("clock_gettime", syscall(SYS_clock_gettime, CLOCK_MONOTONIC, bad));
    refused("clock_gettime cpu", syscall(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, bad));
    refused("gettimeofday", syscall(SYS_gettimeofday, bad, 0));
    refused("gettimeofday zone", syscall(SYS_gettimeofday, 0, bad));
    refused("time", syscall(SYS_time, bad));
    refused("sched_getaffinity", syscall(SYS_sched_getaffinity, 0, 1024, bad));
    refused("sched_setaffinity", syscall(SYS_sched_setaffinity, 0, 128, bad));
    refused("stat", syscall(SYS_stat, "/", bad));
    refused("pipe", syscall(SYS_pipe, bad));
    refused("nanosleep", syscall(SYS_nanosleep, bad, 0));
    refused("sigaction", syscall(SYS_rt_sigaction, SIGUSR1, bad, 0, 8));
    refused("sigaction old", syscall(SYS_rt_sigaction, SIGUSR1, 0, bad, 8));
    refused("sigprocmask", syscall(SYS_rt_sigprocmask, SIG_BLOCK, bad, 0, 8));
    refused("sigaltstack", syscall(SYS_sigaltstack, bad, 0));
    refused("sigpending", syscall(SYS_rt_sigpending, bad, 8));
    refused("getrlimit", syscall(SYS_prlimit64, 0, 7, 0, bad));
    refused("setrlimit", syscall(SYS_prlimit64, 0, 7, bad, 0));
    refused("uname", syscall(SYS_uname, bad));
    refused("times", syscall(SYS_times, bad));
    refused("getrandom", syscall(SYS_getrandom, bad, 16, 0));
    refused("open", syscall(SYS_open, bad, O_RDONLY));
    refused("write", syscall(SYS_write, 1, bad, 4));
    refused("writev", syscall(SYS_writev, 1, bad, 1));
    refused("readlink", syscall(SYS_readlink, "/proc/self/exe", bad, 100));
    refused("getcwd", syscall(SYS_getcwd, bad, 100));
    refused("prctl name", syscall(SYS_prctl, 15, bad));
    refused("getitimer", syscall(SYS_getitimer, 0, bad));
    refused("setitimer", syscall(SYS_setitimer, 0, bad, 0));
    refused("getgroups or none", syscall(SYS_getresuid, bad, bad, bad));
    refused("select", syscall(SYS_select, 4, bad, 0, 0, 0));
    refused("poll", syscall(SYS_poll, bad, 1, 0));
    refused("futex", syscall(SYS_futex, (void *)8, 0, 1, 0));
    refused("mincore", syscall(SYS_mincore, (long)&main & ~4095l, 4096, bad));
    /* The kernel stores the time that is left all the same. */
    struct timespec left = {0, 1000000};
    void *shut = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    refused("pselect6 with a limit", syscall(SYS_pselect6, 4, shut, 0, 0, &left, 0));
    refused("ppoll with a limit", syscall(SYS_ppoll, shut, 1, &left, 0, 8));
    sink(&left, sizeof left);
    return done();
}
