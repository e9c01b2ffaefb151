/* A program that digests its own code, read through pointers: it must see the bytes that were linked, twice the same. */
#include "guest.h"

extern const char __executable_start[], etext[];

int main(void) {
    size_t n = etext - __executable_start;
    uint64_t a = digest(__executable_start, n);
    int fd = open("/proc/self/exe", O_RDONLY);
    char *f = mmap(0, n, PROT_READ, MAP_PRIVATE, fd, 0);
    need("map", f != MAP_FAILED);
    check("equal each time", a == digest(__executable_start, n));
    check("equal to the file", a == digest(f, n));
    return done();
}
