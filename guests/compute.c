/* Says that it begins, then computes for about the milliseconds given without a system call, longer than a replica that
 * hangs may take, then says what it computed. flip_here is executed 73 times a millisecond, with the result in rax and
 * the rounds that are left in rdx. */
#include "guest.h"

int main(int argc, char **argv) {
    uint64_t x = 88172645463325252u;
    puts("round 0 begins"), fflush(stdout);
    for (long i = (argc > 1 ? atol(argv[1]) : 10) * 73; i > 0; i--) {
        for (int k = 0; k < 4096; k++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        __asm__ volatile(".globl flip_here\n.type flip_here, @function\nflip_here: .byte 0x0f, 0x1f, 0x44, 0, 0" : "+a"(x), "+d"(i));
    }
    printf("%016lx\n", x);
    return done();
}
