/* Files that hold no program, mapped as code: larger than memory, and empty. */
#include "guest.h"

int main(void) {
    int fd = syscall(SYS_memfd_create, "large", 0);
    need("memory object", fd >= 0 && ftruncate(fd, 1L << 42) == 0);
    const unsigned char ret = 0xc3;
    need("code", pwrite(fd, &ret, 1, 1L << 41) == 1);
    void *at = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 1L << 41);
    check("mapped", at != MAP_FAILED);
    void (*f)(void);
    memcpy(&f, &at, sizeof f);
    f();
    check("called", 1);
    close(fd);
    fd = open("empty", O_RDWR | O_CREAT, 0600);
    check("an empty file", mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED);
    return done();
}
