/* The 32-bit gate, int 0x80, from 64-bit code: getpid there is number 20. */
#include "guest.h"

int main(void) {
    long rc;
    puts("before");
    fflush(stdout);
    __asm__ volatile("int $0x80" : "=a"(rc) : "a"(20) : "memory");
    check("same pid", rc == getpid());
    return done();
}
