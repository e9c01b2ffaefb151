/* A program that has its misaligned accesses trap (EFLAGS.AC): calls, and a signal, while it does. Nothing of the C library
 * runs then, which makes such accesses itself. */
#include "guest.h"

static long call(long n, long a, long b, long c) {
    register long r10 __asm__("r10") = 8;
    __asm__ volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return n;
}

static unsigned long flags(unsigned long set, unsigned long clear) {
    unsigned long was;
    __asm__ volatile("pushfq\n\tmovq (%%rsp), %0\n\torq %1, (%%rsp)\n\tandq %2, (%%rsp)\n\tpopfq" : "=&r"(was) : "r"(set), "r"(~clear) : "memory", "cc");
    return was;
}

#define AC (1ul << 18)
static _Alignas(64) char bytes[64] = "aligned\n";
static volatile int handled;
static void handler(int s) { handled = s; }

int main(void) {
    signal(SIGUSR1, handler);
    long pid = getpid(), clock[2] = {0, 0};
    int zero = open("/dev/zero", O_RDONLY);
    need("/dev/zero", zero >= 0);
    flags(AC, 0);
    long written = call(SYS_write, 1, (long)bytes, 8), read = call(SYS_read, zero, (long)bytes + 3, 9);
    long killed = call(SYS_kill, pid, SIGUSR1, 0), timed = call(SYS_clock_gettime, CLOCK_MONOTONIC, (long)clock, 0);
    long again = call(SYS_write, 1, (long)bytes, 3);
    unsigned long was = flags(0, AC);
    printf("\n%ld %ld %ld %ld %ld %d\n", written, read, killed, timed, again, handled);
    check("still checked", (was & AC) != 0);
    return done();
}
