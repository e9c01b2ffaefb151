/* A program with a fixed amount of live memory that computes and makes events at a steady rate,
 * to be hit by faults.
 *
 * steady MIB ROUNDS
 *
 * Each round mixes 16 KiB of the memory (a few microseconds) and makes one system call that has
 * no effect; each 256th writes a digest. Everything is live: a flipped bit in the memory or in
 * the running sum reaches the output sooner or later.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WORDS_PER_ROUND = 2048 };

int main(int argc, char **argv)
{
    size_t words = argc == 3 ? (strtoul(argv[1], NULL, 10) << 20) / 8 : 0;
    long rounds = argc == 3 ? atol(argv[2]) : 0;

    if (words < WORDS_PER_ROUND || rounds < 1) {
        fprintf(stderr, "usage: %s MIB ROUNDS\n", argv[0]);
        return 64;
    }
    uint64_t *memory = malloc(words * 8);
    uint64_t sum = 1;
    size_t at = 0;

    if (!memory)
        return 1;
    for (size_t word = 0; word < words; word++)
        memory[word] = word * 0x9e3779b97f4a7c15u;
    for (long round = 0; round < rounds; round++) {
        for (size_t word = 0; word < WORDS_PER_ROUND; word++) {
            sum = (sum ^ memory[at + word]) * 0x100000001b3u;
            memory[at + word] = sum;
            /* Where faults strike: room for a jump (a 5-byte nop, Intel SDM, NOP), executed
             * WORDS_PER_ROUND times a round. */
            __asm__ volatile(".ifndef steady_word\n.type steady_word, @function\nsteady_word: .endif\n"
                             ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00");
        }
        at = at + 2 * WORDS_PER_ROUND <= words ? at + WORDS_PER_ROUND : 0;
        syscall(SYS_getppid);
        if (round % 256 == 255) {
            printf("%016llx\n", (unsigned long long)sum);
            fflush(stdout);
        }
    }
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
