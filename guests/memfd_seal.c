/* A memory object mapped shared and writable cannot be sealed against writing; unmapped it can, and then not mapped so. */
#include "guest.h"

int main(void) {
    int fd = memfd_create("guest", MFD_ALLOW_SEALING);
    need("memfd", fd >= 0 && ftruncate(fd, 8192) == 0);
    char *a = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), c = 0;
    need("mmap", a != MAP_FAILED);
    a[10] = 'q';
    check("read sees it", pread(fd, &c, 1, 10) == 1 && c == 'q');
    check("busy", fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == -1 && errno == EBUSY);
    munmap(a, 4096);
    check("half is busy too", fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == -1 && errno == EBUSY);
    a[4096] = 'r';
    munmap(a + 4096, 4096);
    check("sealed", fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK) == 0);
    check("no write", write(fd, "x", 1) == -1 && errno == EPERM);
    check("no mapping", mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPERM);
    a = mmap(0, 8192, PROT_READ, MAP_SHARED, fd, 0);
    check("readable", a != MAP_FAILED && a[10] == 'q' && a[4096] == 'r');
    check("for good", mprotect(a, 4096, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
    return done();
}
