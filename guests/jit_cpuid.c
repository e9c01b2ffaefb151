/* cpuid in a page of code made at run time: its answers name the core (leaves 1 and 0xb). */
#include "guest.h"

int main(void) {
    unsigned char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static const unsigned char leaf1[] = {0x53, 0xb8, 1, 0, 0, 0, 0x0f, 0xa2, 0x89, 0xd8, 0x5b, 0xc3};
    static const unsigned char leaf11[] = {0x53, 0xb8, 11, 0, 0, 0, 0x31, 0xc9, 0x0f, 0xa2, 0x89, 0xd0, 0x5b, 0xc3};
    memcpy(p, leaf1, sizeof leaf1); /* push rbx; mov eax,1; cpuid; mov eax,ebx; pop rbx; ret */
    memcpy(p + 64, leaf11, sizeof leaf11); /* the same with leaf 11, subleaf 0, and edx */
    need("mprotect", mprotect(p, 4096, PROT_READ | PROT_EXEC) == 0);
    for (int i = 0; i < 20; i++) {
        uint32_t ids[2] = {((uint32_t(*)(void))p)(), ((uint32_t(*)(void))(p + 64))()};
        sink(ids, sizeof ids);
    }
    check("asked", 1);
    for (int i = 0; i < 100; i++) sink(p, 8); /* longer than replicas stand on one core */
    return done();
}
