/* The time stamp counter goes on while the program sleeps, also where the code that reads it was made at run time. */
#include "guest.h"

int main(void) {
    unsigned char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static const unsigned char code[] = {0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0, 0xc3};
    memcpy(p, code, sizeof code); /* rdtsc; shl rdx,32; or rax,rdx; ret */
    need("mprotect", mprotect(p, 4096, PROT_READ | PROT_EXEC) == 0);
    uint64_t (*now)(void) = (uint64_t(*)(void))p;
    uint64_t before = now();
    usleep(20000);
    check("a million ticks", now() - before > 1000000); /* of 20 ms: any counter from 50 MHz on */
    return done();
}
