/* Files mapped privately: read-only, copy-on-write that the file never sees, a tail page of zeros, an offset. */
#include "guest.h"

int main(void) {
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 3000; i++) need("write", dprintf(fd, "%06d\n", i) == 7);
    char *r = mmap(0, 21000, PROT_READ, MAP_PRIVATE, fd, 0), *w = mmap(0, 21000, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    printf("digest %016lx\n", digest(r, 21000));
    memset(w, 'x', 21000);
    char b[8] = {0};
    check("file untouched", pread(fd, b, 6, 7) == 6 && !strcmp(b, "000001"));
    check("other mapping untouched", !memcmp(r, "000000\n", 7));
    check("tail is zeros", r[21000] == 0 && r[(21000 | 4095)] == 0);
    char *o = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 8192);
    check("offset", !memcmp(o, r + 8192, 4096));
    close(fd);
    check("outlives the descriptor", r[20993] == '0');
    printf("digest %016lx\n", digest(w, 21000));
    check("no such offset", mmap(0, 4096, PROT_READ, MAP_PRIVATE, 99, 0) == MAP_FAILED && errno == EBADF);
    return done();
}
