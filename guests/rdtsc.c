/* rdtsc and rdtscp: in order, in a loop, with their values written where replicas compare them. */
#include "guest.h"

int main(void) {
    uint64_t last = 0, ok = 1;
    unsigned aux = 0, lo, hi;
    for (int i = 0; i < 1000; i++) {
        if (i & 1) __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
        else __asm__ volatile("rdtscp" : "=a"(lo), "=d"(hi), "=c"(aux));
        uint64_t now = (uint64_t)hi << 32 | lo;
        ok &= now > last;
        last = now;
        if (i % 100 == 0) sink(&now, sizeof now), sink(&aux, sizeof aux);
    }
    check("in order", ok);
    check("aux is a processor", (aux & 0xfff) < 4096);
    uint64_t rax;
    __asm__ volatile("mov $-1, %%rax\n\tmov $-1, %%rdx\n\trdtsc" : "=a"(rax) : : "rdx");
    check("upper half cleared", rax >> 32 == 0);
    return done();
}
