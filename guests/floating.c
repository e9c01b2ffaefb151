/* Floating point: sums, transcendental functions, denormals, infinities, NaN payloads, fused multiply-add, single precision. */
#include "guest.h"
#include <math.h>

int main(void) {
    double s = 0, d = 4.9e-324;
    float f = 0;
    for (int i = 1; i < 200000; i++) s += sin(i) * exp(-i / 1e5) / sqrt(i), f += 1.0f / i;
    printf("%a %a\n", s, f);
    printf("%a %a %a\n", d, d / 2, d * 3);
    printf("%g %g %d\n", 1 / 0.0, -1 / 0.0, isnan(0.0 / 0.0));
    printf("%a %a\n", fma(0.1, 10, -1), 0.1 * 10 - 1);
    printf("%a %a %a\n", pow(1.1, 77), tgamma(5.5), cbrt(2));
    uint64_t payload = 0x7ff8000000abcdef;
    memcpy(&d, &payload, 8);
    getppid();
    memcpy(&payload, &d, 8);
    printf("%016lx\n", payload);
    return done();
}
