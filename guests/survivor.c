/* Survives wild addresses: a handler jumps out of the load that faulted, and the value is read from a copy. Says how
 * often a load came back with another address in its register than it was given: a fault that strikes one load must not
 * be felt by the next. Beside that it doubles numbers, by one instruction.
 *
 * load and twice are executed 64 times a round each. */
#include "guest.h"
#include <setjmp.h>

long load(long *at, long **kept);
long twice(long x);
__asm__(".globl load, twice\n.type load, @function\n.type twice, @function\n"
        "load: mov (%rdi), %rax\n\tmov %rdi, (%rsi)\n\tret\n.size load, . - load\n"
        /* lea 0(%rdi,%rdi,1), %rax, long enough for a patcher by itself */
        ".p2align 6\n"
        "twice: .byte 0x48, 0x8d, 0x84, 0x3f, 0, 0, 0, 0\n\tret\n.size twice, . - twice\n");

enum { CELLS = 64 };
static long cells[CELLS], copies[CELLS];
static sigjmp_buf back;

static void jump(int signal) { (void)signal; siglongjmp(back, 1); }

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    static long sum, doubled, moved;
    struct sigaction action = { .sa_handler = jump };
    need("sigaction", !sigaction(SIGSEGV, &action, NULL));
    for (int i = 0; i < CELLS; i++) cells[i] = copies[i] = i * 7919;
    for (volatile int r = 0; r < rounds; r++) {
        for (volatile int i = 0; i < CELLS; i++) {
            long *from = cells + i, *kept;
            if (sigsetjmp(back, 1)) from = copies + i;
            sum += load(from, &kept);
            moved += kept != from;
            doubled += twice(sum);
        }
        char line[96];
        int n = snprintf(line, sizeof line, "round %d sum %ld doubled %ld moved %ld\n", r, sum, doubled, moved);
        if (write(1, line, n) != n) return 1;
    }
    return 0;
}
