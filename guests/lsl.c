/* The limit of a segment that the kernel keeps the number of the processor in. */
#include "guest.h"

int main(void) {
    unsigned limit = 0;
    puts("before");
    fflush(stdout);
    __asm__ volatile("lsl %1, %0" : "=r"(limit) : "r"(0x7b) : "cc");
    sink(&limit, sizeof limit);
    return done();
}
