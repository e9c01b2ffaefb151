/* The library that dlopen_own loads: its system call sites are mapped long after the program started. */
#include <sys/syscall.h>

static char name[] = "plugin 0\n";
static int loads;
__attribute__((constructor)) static void loaded(void) { loads++; }

int plugin_say(int i) {
    long rc;
    name[7] = '0' + i;
    __asm__ volatile("syscall" : "=a"(rc) : "a"(SYS_write), "D"(1), "S"(name), "d"(9ul) : "rcx", "r11", "memory");
    return rc == 9 && loads == 1 ? 7 : 0;
}

int plugin_clock(void) {
    unsigned lo, hi, lo2, hi2;
    __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
    __asm__ volatile("rdtsc" : "=a"(lo2), "=d"(hi2));
    return ((unsigned long)hi << 32 | lo) < ((unsigned long)hi2 << 32 | lo2);
}
