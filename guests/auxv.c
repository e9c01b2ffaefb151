/* The auxiliary vector: AT_RANDOM, page size, entry, user, and the same through /proc/self/auxv; vDSO found or absent. */
#include "guest.h"
#include <elf.h>
#include <sys/auxv.h>

int main(void) {
    unsigned char *r = (void *)getauxval(AT_RANDOM);
    check("random bytes", r && digest(r, 16) != digest("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16));
    sink(r, 16);
    check("page size", getauxval(AT_PAGESZ) == 4096 && sysconf(_SC_PAGESIZE) == 4096);
    check("user", getauxval(AT_UID) == getuid() && getauxval(AT_EGID) == getegid() && getauxval(AT_SECURE) == 0);
    printf("%s\n", strrchr((char *)getauxval(AT_EXECFN), '/') + 1);
    Elf64_auxv_t v[64];
    int fd = open("/proc/self/auxv", O_RDONLY), n = read(fd, v, sizeof v) / sizeof *v, random = 0, vdso = 0;
    for (int i = 0; i < n; i++) {
        if (v[i].a_type == AT_RANDOM) random = v[i].a_un.a_val == (uintptr_t)r;
        if (v[i].a_type == AT_SYSINFO_EHDR) vdso = v[i].a_un.a_val != 0; /* the kernel's own, see docs/reference/limits-run.md */
    }
    check("procfs agrees on random", random);
    check("procfs has a vDSO if we do", vdso || !getauxval(AT_SYSINFO_EHDR));
    if (getauxval(AT_SYSINFO_EHDR)) check("it is an ELF image", !memcmp((void *)getauxval(AT_SYSINFO_EHDR), "\177ELF", 4));
    return done();
}
