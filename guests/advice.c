/* Advice about forks and merging, locks of all memory: what the program has stays what it is, also across a repair.
 * Rounds follow, so that something can be done to a replica meanwhile. */
#include "guest.h"
#include <sys/resource.h>

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    size_t n = 16 * 4096;
    unsigned char *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *q = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(p, 7, n), memset(q, 9, n);
    check("DONTFORK", madvise(p, n, MADV_DONTFORK) == 0);
    int fd = open("/proc/self/exe", O_RDONLY);
    void *f = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    check("not for files", madvise(f, 4096, MADV_WIPEONFORK) == -1 && errno == EINVAL);
    check("unmapped", munmap(f, 4096) == 0 && madvise(f, 4096, MADV_DONTFORK) == -1 && errno == ENOMEM);
    check("unknown", madvise(p, n, 77) == -1 && errno == EINVAL);
    check("no flags", mlockall(0) == -1 && errno == EINVAL);
    check("wrong flags", mlockall(8) == -1 && errno == EINVAL);
    check("mlockall", mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
    unsigned char v[16] = {0};
    void *later = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check("later is locked", later != MAP_FAILED && mincore(later, n, v) == 0 && (v[15] & 1));
    check("munlockall", munlockall() == 0);
    for (int r = 0; r < rounds; r++) {
        for (size_t i = 0; i < n; i++) p[i] = p[i] * 5 + q[i], q[i] += r;
        printf("round %d %016lx %016lx\n", r, digest(p, n), digest(q, n));
        fflush(stdout);
    }
    return done();
}
