/* Calls that fail and have done a part of what was asked: up to a hole, around one, up to a locked page. */
#include "guest.h"

static char *pages(size_t n) {
    char *p = mmap(0, n * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need("mmap", p != MAP_FAILED);
    memset(p, 7, n * 4096);
    return p;
}

/* The first page that the kernel maps into every process to be read from. */
static char *of_the_kernel(void) {
    char line[256];
    unsigned long at = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    need("maps", f != 0);
    while (!at && fgets(line, sizeof line, f))
        if (strstr(line, "[vvar")) at = strtoul(line, 0, 16);
    fclose(f);
    return (char *)at;
}

static void up_to_the_kernels(void) {
    char *its = of_the_kernel(), *p = its - 4096;
    need("the kernel's", its != 0);
    if (mmap(p, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
        need("what lies below it", mprotect(p, 4096, PROT_READ) == 0); /* the loader's */
    check("mprotect up to a page of the kernel's", mprotect(p, 2 * 4096, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
    *(volatile char *)p = *p;
}

int main(void) {
    up_to_the_kernels();
    char *p = pages(3);
    need("protected", mprotect(p, 3 * 4096, PROT_READ) == 0 && munmap(p + 2 * 4096, 4096) == 0);
    check("mprotect up to a hole", mprotect(p, 3 * 4096, PROT_READ | PROT_WRITE) == -1 && errno == ENOMEM);
    p[4096] = 1;
    check("what lies before it may be written", p[4096] == 1);

    p = pages(5);
    need("a hole", munmap(p + 4096, 4096) == 0);
    check("madvise around a hole", madvise(p, 3 * 4096, MADV_DONTNEED) == -1 && errno == ENOMEM);
    check("both sides are gone, and no more", p[0] == 0 && p[2 * 4096] == 0 && p[3 * 4096] == 7);
    p[0] = p[2 * 4096] = 7;
    check("MADV_FREE around a hole", madvise(p, 3 * 4096, MADV_FREE) == -1 && errno == ENOMEM);
    sink(p, 4096);

    p = pages(3);
    need("locked", mlock(p + 4096, 4096) == 0);
    check("madvise up to a locked page", madvise(p, 3 * 4096, MADV_DONTNEED) == -1 && errno == EINVAL);
    check("what lies before it is gone", p[0] == 0 && p[4096] == 7);
    sink(p, 3 * 4096);

    p = pages(2);
    need("nothing there", munmap(p, 4096) == 0);
    check("mremap of nothing", mremap(p, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, p + 4096) == MAP_FAILED);
    unsigned char resident;
    printf("its target: %s\n", mincore(p + 4096, 4096, &resident) ? strerror(errno) : "still there");
    return done();
}
