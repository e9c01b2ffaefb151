/* rdtsc in a page of code made at run time: no patcher saw them when the program started. */
#include "guest.h"

int main(void) {
    unsigned char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static const unsigned char code[] = {0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0, 0xc3};
    memcpy(p, code, sizeof code); /* rdtsc; shl rdx,32; or rax,rdx; ret */
    need("mprotect", mprotect(p, 4096, PROT_READ | PROT_EXEC) == 0);
    uint64_t last = 0, ok = 1;
    for (int i = 0; i < 100; i++) {
        uint64_t now = ((uint64_t(*)(void))p)();
        ok &= now > last, last = now;
        sink(&now, 8);
    }
    check("in order", ok);
    return done();
}
