/* What memory operands get wrong: a value goes through a slot of the stack whose address the stack pointer forms,
 * and through a push. The three places are 5 bytes long, so that any patcher finds room. */
#include "guest.h"

uint64_t turn(uint64_t x);

__asm__(".globl turn, store_here, load_here, push_here\n.type turn, @function\n"
        ".type store_here, @notype\n.type load_here, @notype\n.type push_here, @notype\n"
        "turn:\n\t"
        "sub $64, %rsp\n"
        "store_here:\n\t"
        "movq %rdi, 16(%rsp)\n"
        "load_here:\n\t"
        "movq 16(%rsp), %rax\n\t"
        "lea 1(%rax,%rax,2), %rax\n"
        "push_here:\n\t"
        "push %rax\n\t"
        "nopl 0(%rax)\n\t"
        "pop %rax\n\t"
        "add $64, %rsp\n\t"
        "ret\n"
        ".size turn, . - turn");

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    uint64_t x = 1;
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < 500; i++) x = turn(x + i);
        char line[64];
        int n = snprintf(line, sizeof line, "round %d %016lx\n", r, x);
        if (write(1, line, n) != n) return 1;
    }
    return 0;
}
