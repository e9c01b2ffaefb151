/* Pages that the kernel may drop whenever it likes (MADV_FREE): it drops them from all replicas at the same moment, which is
 * the call. Says whether they are there, behind it and after memory checks have come by. And calls that fail when they have
 * changed a part of what they name. */
#include "guest.h"

static long resident(const char *p, size_t pages) {
    unsigned char v[64];
    long n = 0;
    need("mincore", pages <= sizeof v && mincore((void *)p, pages * 4096, v) == 0);
    for (size_t i = 0; i < pages; i++) n += v[i] & 1;
    return n;
}

int main(void) {
    size_t n = 64 * 4096;
    char *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need("memory", p != MAP_FAILED && madvise(p, n, MADV_NOHUGEPAGE) == 0);
    memset(p, 7, n);
    printf("resident %ld\n", resident(p, 64));
    check("free", madvise(p, n / 2, MADV_FREE) == 0);
    printf("resident %ld\n", resident(p, 64));
    check("free with a gap behind", munmap(p + n - 4096, 4096) == 0 && madvise(p + n / 2, n / 2, MADV_FREE) == -1 && errno == ENOMEM);
    printf("resident %ld\n", resident(p, 63));
    char *q = mmap(0, 4 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need("gap", munmap(q + 2 * 4096, 4096) == 0);
    check("opened up to a gap", mprotect(q, 4 * 4096, PROT_READ | PROT_WRITE) == -1 && errno == ENOMEM);
    q[0] = q[4096] = 1;
    sink(q, 2 * 4096);
    answer("guard", madvise(p, 4096, 102 /* MADV_GUARD_INSTALL */) == 0);
    answer("wiped in children", madvise(p, 4096, MADV_WIPEONFORK) == 0);
    for (int i = 0; i < 40; i++) {
        memset(p + 4096, i, 4096);
        sink(p + 4096, 4096);
        usleep(5000);
    }
    puts("end");
    return done();
}
