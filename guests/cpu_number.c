/* The number of the core: getcpu by vDSO and system call, sched_getcpu, rdpid, rdtscp; all plausible, all to the sink. */
#include "guest.h"
#include <cpuid.h>
#include <sched.h>

int main(void) {
    unsigned a, b, c = 0, d, cpu = 0, node = 0;
    int ok = 1, n = sysconf(_SC_NPROCESSORS_CONF);
    uint64_t id = 0;
    int has_rdpid = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c >> 22 & 1);
    for (int i = 0; i < 50; i++) {
        int s = sched_getcpu();
        ok &= s >= 0 && s < n;
        ok &= syscall(SYS_getcpu, &cpu, &node, 0) == 0 && cpu < (unsigned)n;
        if (has_rdpid) __asm__ volatile("rdpid %0" : "=r"(id));
        ok &= !has_rdpid || (id & 0xfff) < (unsigned)n;
        sink(&s, 4), sink(&cpu, 4), sink(&id, 8);
    }
    check("plausible", ok);
    return done();
}
