/* A program that fills memory and then waits, to be measured while it stands still.
 *
 * hold MIB
 *
 * Says "ready" on standard output when the memory is filled, and ends when it can read a byte.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    size_t bytes = argc == 2 ? strtoul(argv[1], NULL, 10) << 20 : 0;
    char *memory = bytes ? malloc(bytes) : NULL;
    char byte;

    if (!memory) {
        fprintf(stderr, "usage: %s MIB\n", argv[0]);
        return 64;
    }
    /* A different value per page, so that no page equals another. */
    for (size_t page = 0; page < bytes; page += 4096)
        memset(memory + page, (int)(page >> 12), 4096);
    puts("ready");
    fflush(stdout);
    if (read(0, &byte, 1) < 0)
        return 1;
    printf("%d\n", memory[bytes / 2]);
    return 0;
}
