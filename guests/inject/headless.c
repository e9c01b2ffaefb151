// A program whose first thread ends at once, and whose second does the work: its process is there for a tenth of a
// second and some more, with a first thread that nobody can trace. It waits first and computes then.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__asm__(".type spin, @function\n"
        "spin: xor %eax, %eax\n"
        "1: add $1, %rax\n"
        "dec %rdi\n"
        "jnz 1b\n"
        "ret\n"
        ".size spin, . - spin\n");
extern long spin(long rounds);

static void *rest(void *unused)
{
    usleep(100000);
    printf("%ld rounds\n", spin(800000000));
    exit(0);
    return unused;
}

int main(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, rest, NULL) != 0)
        return 1;
    pthread_exit(NULL);
}
