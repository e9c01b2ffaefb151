/* 64 MiB of a sparse file mapped shared: pages stored to here and there, all of one stretch, and the same value again. */
#include "guest.h"

int main(void) {
    enum { N = 64 << 20 };
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    need("size", ftruncate(fd, N) == 0);
    unsigned char *m = mmap(0, N, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    need("mmap", m != MAP_FAILED);
    for (int round = 1; round < 4; round++) {
        for (size_t i = 0; i < N; i += 997 * 1024) m[i] = round;
        for (size_t i = N / 2; i < N / 2 + (6 << 20); i++) m[i] = (unsigned char)(i * 31 >> round);
        check("msync", msync(m, N, round == 2 ? MS_SYNC : MS_ASYNC) == 0);
        unsigned char b[2] = {0};
        check("far", pread(fd, b, 1, 997 * 1024 * 60) == 1 && b[0] == round);
        check("dense", pread(fd, b, 1, N / 2 + 12345) == 1 && b[0] == (unsigned char)((N / 2 + 12345) * 31 >> round));
    }
    for (size_t i = 0; i < N; i += 4096) *(volatile unsigned char *)(m + i) = m[i];
    printf("digest %016lx\n", digest(m, N));
    check("munmap", munmap(m, N) == 0);
    return done();
}
