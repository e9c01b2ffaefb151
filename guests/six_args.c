/* Calls that use all six arguments: mmap with an offset, copy_file_range, pselect6, sendto, by raw assembly. */
#include "guest.h"

static long call6(long n, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long rc;
    __asm__ volatile("syscall" : "=a"(rc) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return rc;
}

int main(void) {
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 5000; i++) dprintf(fd, "%05d\n", i);
    char *m = (char *)call6(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, fd, 12288);
    check("mmap", !memcmp(m, "02048\n", 6));
    int to = open("g", O_RDWR | O_CREAT | O_TRUNC, 0644);
    long off = 6;
    check("copy_file_range", call6(SYS_copy_file_range, fd, (long)&off, to, 0, 12, 0) == 12 && off == 18);
    struct timespec t = {0, 1000000};
    check("pselect6", call6(SYS_pselect6, 0, 0, 0, 0, (long)&t, 0) == 0);
    check("arguments kept in a bad call", call6(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, fd, 1) == -EINVAL);
    check("futex, six", call6(SYS_futex, (long)&off, 128, 17, 0, 0, 0) == -EAGAIN);
    return done();
}
