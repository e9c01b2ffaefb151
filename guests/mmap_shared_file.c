/* A file mapped shared and writable: stores reach the file at msync and munmap, and those left at exit do too. */
#include "guest.h"

int main(void) {
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    need("size", ftruncate(fd, 65536) == 0);
    char *m = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), b[16] = {0};
    need("mmap", m != MAP_FAILED);
    strcpy(m + 100, "through the map");
    check("msync", msync(m, 65536, MS_SYNC) == 0);
    check("in the file", pread(fd, b, 15, 100) == 15 && !strcmp(b, "through the map"));
    strcpy(m + 40960, "at munmap");
    check("munmap", munmap(m, 65536) == 0);
    check("there too", pread(fd, b, 10, 40960) == 10 && !strcmp(b, "at munmap"));
    m = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check("kept", !strcmp(m + 100, "through the map"));
    memcpy(m + 8192, "left at exit", 12);
    return done();
}
