/* mremap: growth in place or by moving, shrinking, moving to a fixed address, DONTUNMAP, and a mapping split by it. */
#include "guest.h"

static char *map(size_t n) {
    char *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need("mmap", p != MAP_FAILED);
    return p;
}

int main(void) {
    size_t n = 4096;
    char *p = map(n);
    p[0] = 42;
    for (; n < 64 << 20; n *= 2) {
        p = mremap(p, n, n * 2, MREMAP_MAYMOVE);
        need("grow", p != MAP_FAILED);
        p[n] = 43;
    }
    check("content kept", p[0] == 42 && p[4096] == 43 && p[n / 2] == 43);
    sink(&p, sizeof p);
    check("shrink in place", mremap(p, n, 8192, 0) == p);
    char *hole = map(1 << 20);
    munmap(hole, 1 << 20);
    char *q = mremap(p, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, hole);
    check("to a fixed address", q == hole && q[0] == 42);
    char *r = mremap(q, 4096, 4096, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    check("old pages stay, empty", r != MAP_FAILED && r[0] == 42 && q[0] == 0);
    char *s = map(3 * 4096);
    check("no room in place", mremap(s, 4096, 1 << 20, 0) == MAP_FAILED && errno == ENOMEM);
    check("middle moved out", mremap(s + 4096, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, hole + 65536) == hole + 65536);
    check("of nothing", mremap(s + 4096, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
    return done();
}
