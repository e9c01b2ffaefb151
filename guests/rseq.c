/* Restartable sequences: what the C library registered reads as a processor or as absent; membarrier is answered. */
#include "guest.h"
#include <linux/membarrier.h>
#include <stddef.h>
#include <sys/rseq.h>

int main(void) {
    unsigned size = __rseq_size;
    struct rseq *r = (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
    int cpu = size ? (int)r->cpu_id : -1;
    check("plausible", cpu < sysconf(_SC_NPROCESSORS_CONF));
    sink(&cpu, sizeof cpu), sink(&size, sizeof size);
    long m = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    check("membarrier", m >= 0 || errno == ENOSYS);
    return done();
}
