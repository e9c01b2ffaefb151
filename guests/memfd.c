/* memfd_create: written by write, mapped shared twice (one object, two addresses), sealed. */
#include "guest.h"

int main(void) {
    int fd = memfd_create("guest", MFD_ALLOW_SEALING);
    need("memfd", fd >= 0 && ftruncate(fd, 8192) == 0);
    char *a = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *b = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    a[10] = 'q';
    check("one object", *(volatile char *)(b + 10) == 'q');
    char c = 0;
    check("read sees it", pread(fd, &c, 1, 10) == 1 && c == 'q');
    munmap(a, 8192), munmap(b, 8192);
    check("seal", fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK) == 0);
    check("no write", write(fd, "x", 1) == -1 && errno == EPERM);
    check("no shrink", ftruncate(fd, 1) == -1 && errno == EPERM);
    check("seals", fcntl(fd, F_GET_SEALS) == (F_SEAL_WRITE | F_SEAL_SHRINK));
    return done();
}
