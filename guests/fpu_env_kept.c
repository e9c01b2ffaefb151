/* Floating point control: rounding mode and exception flags, in SSE and x87, survive system calls and act as set. */
#include "guest.h"
#include <fenv.h>

int main(void) {
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    volatile double one = 1, three = 3;
    volatile long double lone = 1, lthree = 3;
    for (int i = 0; i < 4; i++) {
        fesetround(modes[i]);
        getppid();
        printf("%a %La\n", one / three, lone / lthree);
        fflush(stdout);
        check("mode kept", fegetround() == modes[i]);
    }
    fesetround(FE_TONEAREST);
    feclearexcept(FE_ALL_EXCEPT);
    three = one / 0.0;
    getppid();
    check("flag kept", fetestexcept(FE_DIVBYZERO) && !fetestexcept(FE_INVALID));
    unsigned csr = __builtin_ia32_stmxcsr() | 0x8040; /* flush to zero, denormals are zero */
    __builtin_ia32_ldmxcsr(csr);
    getppid();
    check("flush to zero kept", (__builtin_ia32_stmxcsr() & 0x8040) == 0x8040);
    return done();
}
