/* Shared file mappings cut, moved, grown, replaced and protected in every way: each store is in the file afterwards,
 * and nothing else. */
#include "guest.h"

enum { P = 4096 };
static int fd;

static int holds(off_t at, const char *s) {
    char b[32] = {0};
    return pread(fd, b, strlen(s), at) == (ssize_t)strlen(s) && !strcmp(b, s);
}

static char *map(int pages, int prot, off_t at) {
    char *m = mmap(0, pages * P, prot, MAP_SHARED, fd, at);
    need("mmap", m != MAP_FAILED);
    return m;
}

int main(void) {
    const int rw = PROT_READ | PROT_WRITE;
    fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    need("size", ftruncate(fd, 64 * P) == 0);

    char *m = map(8, rw, 0);
    for (int i = 0; i < 8; i++) sprintf(m + i * P, "page %d", i);
    check("a hole is cut", munmap(m + 3 * P, 2 * P) == 0 && holds(3 * P, "page 3") && holds(4 * P, "page 4"));
    strcpy(m + 2 * P, "left of it"), strcpy(m + 5 * P, "right of it");
    check("both sides live", msync(m, 3 * P, MS_SYNC) == 0 && holds(2 * P, "left of it") && holds(5 * P, "right of it"));
    check("no sync of a hole", msync(m, 8 * P, MS_ASYNC) == -1 && errno == ENOMEM);
    check("replaced", mmap(m, P, rw, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m && m[0] == 0);
    strcpy(m, "nobody's business");
    check("the file keeps", holds(0, "page 0"));
    munmap(m, 8 * P);

    m = map(2, rw, 8 * P);
    strcpy(m + P, "before");
    char *n = mremap(m, 2 * P, 40 * P, MREMAP_MAYMOVE);
    need("mremap", n != MAP_FAILED);
    strcpy(n + 39 * P, "grown");
    check("grown", !strcmp(n + P, "before") && holds(9 * P, "before") && holds(47 * P, "grown"));
    n = mremap(n, 40 * P, 3 * P, 0);
    strcpy(n + 2 * P, "shrunk");
    char *o = map(3, PROT_READ, 50 * P);
    char *q = mremap(n, 3 * P, 3 * P, MREMAP_MAYMOVE | MREMAP_FIXED, o);
    check("moved onto another", q == o && !strcmp(q + 2 * P, "shrunk") && holds(10 * P, "shrunk"));
    strcpy(q, "after the move");
    check("still the file's", holds(8 * P, "after the move"));
    munmap(q, 3 * P);

    m = map(2, PROT_READ, 20 * P);
    check("made writable", mprotect(m + P, P, rw) == 0);
    strcpy(m + P, "late");
    check("made unreadable", mprotect(m + P, P, PROT_NONE) == 0 && holds(21 * P, "late"));
    munmap(m, 2 * P);
    int ro = open("f", O_RDONLY);
    check("not for writing", mmap(0, P, rw, MAP_SHARED, ro, 0) == MAP_FAILED && errno == EACCES);
    m = mmap(0, P, PROT_READ, MAP_SHARED, ro, 0);
    check("nor later", m != MAP_FAILED && mprotect(m, P, rw) == -1 && errno == EACCES);
    check("follows", pwrite(fd, "seen", 5, 100) == 5 && !strcmp(m + 100, "seen"));
    close(ro), munmap(m, P);

    m = map(4, rw, 24 * P);
    strcpy(m + P, "kept");
    check("dropped pages come back", madvise(m, 4 * P, MADV_DONTNEED) == 0 && !strcmp(m + P, "kept"));
    check("read into it", pread(fd, m + 2 * P, 32, P) == 32 && !strcmp(m + 2 * P, "page 1") && holds(26 * P, "page 1"));
    check("written from it", pwrite(fd, m + P, 5, 60 * P) == 5 && holds(60 * P, "kept"));
    check("written under it", pwrite(fd, "below", 6, 27 * P) == 6 && !strcmp(m + 3 * P, "below"));
    strcpy(m + 3 * P + 100, "above");
    check("side by side", pwrite(fd, "BELOW", 6, 27 * P) == 6 && !strcmp(m + 3 * P, "BELOW") && holds(27 * P + 100, "above"));
    check("shortened", ftruncate(fd, 25 * P + 2) == 0 && ftruncate(fd, 64 * P) == 0);
    check("and zero behind", m[P] == 'k' && m[P + 1] == 'e' && m[P + 2] == 0 && m[2 * P] == 0);
    strcpy(m, "without its descriptor");
    int other = dup(fd);
    close(fd);
    fd = other;
    check("found by a copy", holds(24 * P, "without its descriptor"));
    close(fd);
    strcpy(m + 3 * P, "left at exit");
    return done();
}
