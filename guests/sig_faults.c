/* Synchronous faults with their codes and addresses: SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, each handled and skipped. */
#include "guest.h"
#include <setjmp.h>

static sigjmp_buf back;
static volatile int signal_seen, code;
static void *volatile address;
static void on(int s, siginfo_t *i, void *c) { (void)c; signal_seen = s, code = i->si_code, address = i->si_addr; siglongjmp(back, 1); }

#define SAW(s, c) (signal_seen == (s) && code == (c))
#define TRY(x) do { signal_seen = 0; if (!sigsetjmp(back, 1)) { x; } } while (0)

int main(void) {
    struct sigaction a = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
    for (int s = 1; s < 32; s++)
        if (s == SIGSEGV || s == SIGBUS || s == SIGFPE || s == SIGILL || s == SIGTRAP) sigaction(s, &a, 0);
    char *gone = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TRY(*(volatile char *)(gone + 7) = 1);
    check("read-only page", SAW(SIGSEGV, SEGV_ACCERR) && address == gone + 7);
    munmap(gone, 4096);
    TRY(*(volatile char *)gone);
    check("no page", SAW(SIGSEGV, SEGV_MAPERR) && address == gone);
    TRY(*(volatile char *)0x1234567812345678);
    check("not canonical", SAW(SIGSEGV, SI_KERNEL) && address == 0);
    int fd = open("short", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *beyond = mmap(0, 8192, PROT_READ, MAP_PRIVATE, fd, 0);
    TRY(*(volatile char *)(beyond + 5000));
    check("beyond the file", SAW(SIGBUS, BUS_ADRERR) && address == beyond + 5000);
    volatile int zero = 0, one = 1; /* volatile both: compilers know what 1 / x is for every other x */
    TRY(zero = one / zero);
    check("division by zero", SAW(SIGFPE, FPE_INTDIV));
    zero = -1;
    volatile int least = -2147483647 - 1;
    TRY(zero = least / zero);
    check("overflow of it", SAW(SIGFPE, FPE_INTDIV));
    TRY(__asm__ volatile("ud2"));
    check("ud2", SAW(SIGILL, ILL_ILLOPN));
    TRY(__asm__ volatile("int3"));
    check("int3", SAW(SIGTRAP, SI_KERNEL));
    TRY(((void (*)(void))(uintptr_t)0x10)());
    check("wild jump", SAW(SIGSEGV, SEGV_MAPERR) && address == (void *)0x10);
    int csr = __builtin_ia32_stmxcsr();
    volatile double d = 0;
    TRY(__builtin_ia32_ldmxcsr(0x1f80 & ~0x200); d = 1 / d);
    __builtin_ia32_ldmxcsr(csr);
    check("SSE division by zero", SAW(SIGFPE, FPE_FLTDIV));
    return done();
}
