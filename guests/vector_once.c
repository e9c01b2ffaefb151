/* A vector register stored twice in a row; the second store is what is shown, the first, 5 bytes long, is where faults
 * strike. */
#include "guest.h"

static unsigned char from[16] = "sixteen bytes ok", to[64];

__asm__(".globl flip_here\n.type flip_here, @function\n"
        "flip_here:\n\t"
        "movdqu %xmm5, 16(%rdi)\n\t"
        "movdqu %xmm5, 32(%rdi)\n\t"
        "ret\n"
        ".size flip_here, . - flip_here");

int main(void) {
    __asm__ volatile("movdqu %0, %%xmm5\n\tcall flip_here" : : "m"(from), "D"(to) : "xmm5", "memory");
    sink(to + 16, 16);
    printf("%.16s\n", to + 32);
    return done();
}
