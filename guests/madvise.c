/* madvise: DONTNEED gives zeros or the file again, FREE keeps or drops, huge pages change nothing that is visible. */
#include "guest.h"

int main(void) {
    size_t n = 8 << 20;
    char *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(p, 5, n);
    check("DONTNEED", madvise(p, 1 << 20, MADV_DONTNEED) == 0 && p[0] == 0 && p[(1 << 20) - 1] == 0 && p[1 << 20] == 5);
    check("FREE", madvise(p + (1 << 20), 4096, MADV_FREE) == 0);
    p[1 << 20] = 6;
    check("written after FREE stays", p[1 << 20] == 6);
    madvise(p, n, MADV_HUGEPAGE);
    memset(p, 9, n);
    printf("digest %016lx\n", digest(p, n));
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    need("file", write(fd, "file content", 12) == 12);
    char *f = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    f[0] = 'F';
    check("private copy", f[0] == 'F');
    check("dropped", madvise(f, 4096, MADV_DONTNEED) == 0 && f[0] == 'f');
    check("unaligned", madvise(p + 1, 4096, MADV_DONTNEED) == -1 && errno == EINVAL);
    check("POPULATE_WRITE", madvise(p, 1 << 20, 23) == 0 || errno == EINVAL);
    return done();
}
