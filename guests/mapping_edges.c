/* mremap of file mappings, growing and shrinking, fixed and not; mincore over holes; protections; reading what is gone. */
#include "guest.h"
#include <setjmp.h>

static sigjmp_buf back;
static void fault(int s) { siglongjmp(back, s); }
static int reads(volatile char *p) {
    int s = sigsetjmp(back, 1);
    if (s) return -s;
    return (unsigned char)*p;
}

int main(void) {
    struct sigaction a = {.sa_handler = fault};
    sigaction(SIGSEGV, &a, 0), sigaction(SIGBUS, &a, 0);
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < 5; i++) { char page[4096]; memset(page, 'a' + i, sizeof page); need("write", write(fd, page, sizeof page) == sizeof page); }
    char *p = mmap(0, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 4096);
    p[0] = 'X';
    p = mremap(p, 2 * 4096, 6 * 4096, MREMAP_MAYMOVE);
    check("grown", p != MAP_FAILED && p[0] == 'X' && p[4096] == 'c' && p[3 * 4096] == 'e');
    printf("beyond the file %d\n", reads(p + 5 * 4096));
    check("shrunk", mremap(p, 6 * 4096, 4096, 0) == p);
    printf("gone %d\n", reads(p + 4096));
    char *q = mmap(0, 8 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check("moved", mremap(p, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, q + 4096) == q + 4096 && q[4096] == 'X');
    printf("none %d old %d\n", reads(q), reads(p));
    unsigned char v[8];
    check("hole", munmap(q + 2 * 4096, 4096) == 0 && mincore(q, 8 * 4096, v) == -1 && errno == ENOMEM);
    check("partly", mprotect(q + 4096, 2 * 4096, PROT_READ) == -1 && errno == ENOMEM);
    printf("read only now %d\n", reads(q + 4096));
    check("not there", mprotect((void *)0x1000, 4096, PROT_READ) == -1 && errno == ENOMEM);
    check("noreplace", mmap(q, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
    check("length 0", mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
    check("offset", mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 100) == MAP_FAILED && errno == EINVAL);
    check("no file", mmap(0, 4096, PROT_READ, MAP_PRIVATE, 99, 0) == MAP_FAILED && errno == EBADF);
    check("neither shared nor private", mmap(0, 4096, PROT_READ, MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
    check("the same of a file", mmap(0, 4096, PROT_READ, 0, fd, 0) == MAP_FAILED && errno == EINVAL);
    check("shared, with flags to be validated, of no file", mmap(0, 4096, PROT_READ, MAP_ANONYMOUS | 3, -1, 0) == MAP_FAILED && errno == EINVAL);
    check("truncated under it", ftruncate(fd, 0) == 0);
    char *g = mmap(0, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0);
    check("grows down", g != MAP_FAILED && (g[0] = 1));
    char *h = mmap(0, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    check("populated", h != MAP_FAILED && mincore(h, 4096, v) == 0 && (v[0] & 1));
    check("populated only", (h = mmap(0, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_LOCKED, -1, 0)) != MAP_FAILED);
    check("unaligned", munmap(h + 1, 4096) == -1 && errno == EINVAL);
    return done();
}
