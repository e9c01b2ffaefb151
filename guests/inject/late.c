// A program that spins in its own code and, for longer, in a file that it maps after its start: both keep a register at zero and say in the end
// which bits they have seen in it. Built with -DMAPPED it is that file.
#include <dlfcn.h>
#include <stdio.h>

#ifdef MAPPED
#define SPIN mapped_spin
#else
#define SPIN own_spin
#endif

unsigned long SPIN(unsigned long rounds)
{
    unsigned long seen = 0;

    __asm__ volatile("xor %%ebx, %%ebx\n"
                     "1: or %%rbx, %0\n"
                     "dec %1\n"
                     "jnz 1b\n"
                     : "+r"(seen), "+r"(rounds)
                     :
                     : "rbx", "cc");
    return seen;
}

#ifndef MAPPED
int main(int count, char **words)
{
    unsigned long (*mapped)(unsigned long) = NULL;
    void *file = count > 1 ? dlopen(words[1], RTLD_NOW) : NULL;
    unsigned long own = 0, other = 0;

    if (file != NULL)
        *(void **)&mapped = dlsym(file, "mapped_spin");
    if (mapped == NULL)
        return 1;
    for (int turn = 0; turn < 1000; turn++) {
        own |= SPIN(300000);
        other |= mapped(900000);
    }
    printf("own %lx\nmapped %lx\n", own, other);
    return 0;
}
#endif
