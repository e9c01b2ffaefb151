/* A long loop without an event, whose length changes nothing but time: struck, one replica needs half as long again as
 * the other, which is neither a hang nor a difference.
 *
 * flip_here is a long nop before the loop, with the count in rax. */
#include "guest.h"

int main(void) {
    uint64_t count = 0x140000000u; /* more than a second below 5 GHz; bit 31 is clear */
    printf("before\n"), fflush(stdout);
    __asm__ volatile(".globl flip_here\n.type flip_here, @function\nflip_here: .byte 0x0f, 0x1f, 0x44, 0, 0\n"
                     "1: dec %0\njnz 1b"
                     : "+a"(count));
    printf("after\n");
    return 0;
}
