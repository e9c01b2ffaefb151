/* Scheduling and accounting: affinity, priority, yield, getrusage in order, load figures. */
#include "guest.h"
#include <sched.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

int main(void) {
    cpu_set_t all, one;
    struct rusage a, b;
    check("affinity", sched_getaffinity(0, sizeof all, &all) == 0 && CPU_COUNT(&all) >= 1);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all)) { CPU_SET(i, &one); break; }
    check("set it", sched_setaffinity(0, sizeof one, &one) == 0 && sched_getaffinity(0, sizeof all, &all) == 0 && CPU_EQUAL(&one, &all));
    check("yield", sched_yield() == 0);
    check("policy", sched_getscheduler(0) == SCHED_OTHER);
    check("nice", setpriority(PRIO_PROCESS, 0, 5) == 0 && (errno = 0, getpriority(PRIO_PROCESS, 0) == 5));
    getrusage(RUSAGE_SELF, &a);
    for (volatile long i = 0; i < 3000000; i++);
    getrusage(RUSAGE_SELF, &b);
    check("processor time grows", b.ru_utime.tv_sec * 1000000 + b.ru_utime.tv_usec + b.ru_stime.tv_sec * 1000000 + b.ru_stime.tv_usec >=
                                  a.ru_utime.tv_sec * 1000000 + a.ru_utime.tv_usec + a.ru_stime.tv_sec * 1000000 + a.ru_stime.tv_usec);
    check("memory high-water mark", b.ru_maxrss > 100);
    struct sysinfo s;
    double load[3];
    check("sysinfo", sysinfo(&s) == 0 && s.totalram > 0 && s.procs > 0);
    check("load", getloadavg(load, 3) == 3 && load[0] >= 0);
    sink(&b, sizeof b), sink(&s, sizeof s);
    return done();
}
