/* System calls written in inline assembly, several in one function, errors returned as negative numbers. */
#include "guest.h"

static inline long call3(long n, long a, long b, long c) {
    long rc;
    __asm__ volatile("syscall" : "=a"(rc) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return rc;
}

int main(void) {
    static const char hello[] = "written raw\n";
    check("count", call3(SYS_write, 1, (long)hello, 12) == 12);
    check("EBADF", call3(SYS_write, 999, (long)hello, 12) == -EBADF);
    check("EFAULT", call3(SYS_write, 1, 1, 12) == -EFAULT);
    check("EFAULT beyond the end", call3(SYS_write, 1, -8, 4) == -EFAULT);
    check("parent", call3(SYS_getppid, 0, 0, 0) == getppid());
    check("upper half of the number is ignored", call3(SYS_getppid | 1l << 40, 0, 0, 0) == getppid());
    fflush(stdout);
    call3(SYS_exit_group, guest_failed, 0, 0);
    __builtin_unreachable();
}
