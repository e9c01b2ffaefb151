/* A page of code made at run time (writable and executable at once) that makes a system call; then one made in two steps. */
#include "guest.h"

static const unsigned char getppid_code[] = {0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0xc3}; /* mov eax,110; syscall; ret */

int main(void) {
    unsigned char *p = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need("mmap", p != MAP_FAILED);
    memcpy(p, getppid_code, sizeof getppid_code);
    check("writable and executable", ((long (*)(void))p)() == getppid());
    p[1] = 102; /* getuid: the same site, another number */
    check("code changed in place", ((long (*)(void))p)() == getuid());
    unsigned char *q = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(q + 100, getppid_code, sizeof getppid_code);
    need("mprotect", mprotect(q, 4096, PROT_READ | PROT_EXEC) == 0);
    check("written, then executable", ((long (*)(void))(q + 100))() == getppid());
    munmap(q, 4096);
    long sum = 0, one = getppid();
    p[1] = 110;
    for (int i = 0; i < 1000; i++) sum += ((long (*)(void))p)() == one;
    printf("%ld of 1000\n", sum);
    check("code intact", !memcmp(p, getppid_code, sizeof getppid_code));
    return done();
}
