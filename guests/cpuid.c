/* cpuid: vendor and features are stable, the leaves that name the core (APIC number) go where replicas compare them. */
#include "guest.h"
#include <cpuid.h>

int main(void) {
    unsigned a, b, c, d, v[4] = {0};
    check("leaf 0", __get_cpuid(0, &a, &b, &c, &d) && a >= 1);
    __get_cpuid(1, &v[0], &v[1], &v[2], &v[3]);
    check("SSE2 is there", v[3] >> 26 & 1);
    int ok = 1;
    for (int i = 0; i < 200; i++) {
        unsigned w[4];
        __cpuid(1, w[0], w[1], w[2], w[3]);
        sink(w, sizeof w);
        ok &= w[0] == v[0] && w[2] == v[2];
    }
    check("stable", ok);
    for (unsigned leaf = 0; leaf <= a && leaf < 0x20; leaf++)
        for (unsigned sub = 0; sub < 3; sub++) {
            unsigned w[4];
            __cpuid_count(leaf, sub, w[0], w[1], w[2], w[3]);
            sink(w, sizeof w);
        }
    char brand[49] = {0};
    for (int i = 0; i < 3; i++) __cpuid(0x80000002 + i, ((unsigned *)brand)[4 * i], ((unsigned *)brand)[4 * i + 1], ((unsigned *)brand)[4 * i + 2], ((unsigned *)brand)[4 * i + 3]);
    printf("%s\n", brand);
    return done();
}
