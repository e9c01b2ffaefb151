/* A shared file mapping and read or write of the same file see each other without msync. */
#include "guest.h"

int main(void) {
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    need("size", ftruncate(fd, 8192) == 0);
    char *m = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), b[8] = {0};
    m[5] = 'A';
    check("read sees the store", pread(fd, b, 1, 5) == 1 && b[0] == 'A');
    check("map sees the write", pwrite(fd, "B", 1, 6) == 1 && *(volatile char *)(m + 6) == 'B');
    return done();
}
