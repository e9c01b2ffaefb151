/* Touches a large region (64 MiB, or as many MiB as told) page by page, with huge pages asked for; prints a digest. */
#include "guest.h"

int main(int argc, char **argv) {
    size_t n = (argc > 1 ? atoi(argv[1]) : 64) * (size_t)(1 << 20);
    char *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need("mmap", p != MAP_FAILED);
    madvise(p, n, MADV_HUGEPAGE);
    for (size_t i = 0; i < n; i += 4096) p[i] = i >> 12;
    uint64_t h = 0;
    for (size_t i = 0; i < n; i += 4096) h = h * 31 + (unsigned char)p[i];
    printf("%016lx\n", h);
    return done();
}
