/* The FS base: asked for, moved away and back with nothing between that needs it. */
#include "guest.h"
#include <asm/prctl.h>

static inline __attribute__((always_inline)) long raw(long op, uint64_t arg) {
    long rc;
    __asm__ volatile("syscall" : "=a"(rc) : "a"(SYS_arch_prctl), "D"(op), "S"(arg) : "rcx", "r11", "memory");
    return rc;
}

int main(void) {
    static uint64_t other[64] = {0x1234567};
    uint64_t fs = 0, self = 0, v = 0, now = 0;
    check("asks", raw(ARCH_GET_FS, (uintptr_t)&fs) == 0 && fs);
    __asm__ volatile("mov %%fs:0, %0" : "=r"(self));
    check("points at itself", fs == self);
    long to = raw(ARCH_SET_FS, (uintptr_t)other);
    __asm__ volatile("mov %%fs:0, %0" : "=r"(v));
    long asked = raw(ARCH_GET_FS, (uintptr_t)&now), back = raw(ARCH_SET_FS, fs);
    check("moved and back", to == 0 && back == 0 && v == 0x1234567);
    check("asked while away", asked == 0 && now == (uintptr_t)other);
    return done();
}
