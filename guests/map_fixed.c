/* Mappings at chosen addresses: FIXED over an old one, FIXED_NOREPLACE, a hint, page zero refused, MAP_32BIT. */
#include "guest.h"

enum { PROT = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };

int main(void) {
    char *p = mmap(0, 65536, PROT, ANON, -1, 0);
    memset(p, 7, 65536);
    check("over", mmap(p + 4096, 4096, PROT, ANON | MAP_FIXED, -1, 0) == p + 4096 && p[4096] == 0 && p[8192] == 7);
    check("no replace", mmap(p, 4096, PROT, ANON | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
    munmap(p, 65536);
    check("hint taken", mmap(p, 4096, PROT, ANON, -1, 0) == p);
    char *low = mmap((void *)0x10000000, 4096, PROT, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    check("low address", low == (void *)0x10000000);
    check("32 bit", (uintptr_t)mmap(0, 4096, PROT, ANON | MAP_32BIT, -1, 0) < 1ul << 31);
    check("kernel half", mmap((void *)(1ul << 63), 4096, PROT, ANON | MAP_FIXED, -1, 0) == MAP_FAILED);
    char *none = mmap(0, 1ul << 36, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    check("64 GiB reserved", none != MAP_FAILED && mprotect(none + (1ul << 35), 4096, PROT) == 0);
    none[1ul << 35] = 1;
    check("grows down", mmap(0, 65536, PROT, ANON | MAP_GROWSDOWN | MAP_STACK, -1, 0) != MAP_FAILED);
    return done();
}
