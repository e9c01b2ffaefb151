/* rdrand and rdseed, all operand sizes and both outcomes of the carry flag as they come: bytes go to the sink. */
#include "guest.h"
#include <cpuid.h>

int main(void) {
    unsigned a, b, c = 0, d, has_seed = 0, has_rand;
    __get_cpuid(1, &a, &b, &c, &d), has_rand = c >> 30 & 1;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) has_seed = b >> 18 & 1;
    int ok = 1, got = 0;
    for (int i = 0; i < 100 && has_rand; i++) {
        uint64_t q = 0, carry;
        uint32_t l = 0;
        uint16_t w = 0;
        unsigned char cf;
        __asm__ volatile("rdrand %0\n\tsetc %1" : "=r"(q), "=qm"(cf));
        got += cf, carry = cf;
        __asm__ volatile("mov $-1, %%r9\n\trdrand %%r9d\n\tmov %%r9, %0\n\tsetc %1" : "=r"(q), "=qm"(cf) : : "r9");
        ok &= q >> 32 == 0; /* a 32-bit destination clears the upper half */
        l = q, got += cf;
        __asm__ volatile("rdrand %0\n\tsetc %1" : "=r"(w), "=qm"(cf));
        got += cf;
        sink(&q, 8), sink(&l, 4), sink(&w, 2), sink(&carry, 8);
        if (has_seed) {
            __asm__ volatile("rdseed %%r15\n\tmov %%r15, %0\n\tsetc %1" : "=r"(q), "=qm"(cf) : : "r15");
            sink(&q, 8), sink(&cf, 1);
        }
    }
    check("upper half cleared", ok);
    check("mostly there", !has_rand || got > 150);
    return done();
}
