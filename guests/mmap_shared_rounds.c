/* A shared file mapping filled and synced in rounds; what the fault tests strike between store and sync, and at it.
 * flip_here is a long nop with the address of a fresh store in rax, executed 64 times a round. */
#include "guest.h"

static inline __attribute__((always_inline)) void here(void *at) {
    __asm__ volatile(".globl flip_here\n.type flip_here, @function\nflip_here: .byte 0x0f, 0x1f, 0x44, 0, 0" ::"a"(at) : "memory");
}

int main(int argc, char **argv) {
    enum { N = 1 << 18 };
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    need("size", ftruncate(fd, N) == 0);
    uint64_t *m = mmap(0, N, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), x = 1;
    need("mmap", m != MAP_FAILED);
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < 64; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            uint64_t *at = m + x % (N / 8);
            *at = x;
            here(at);
        }
        /* Time for a snapshot now and then. */
        for (volatile int i = 0; i < 1000000; i++) {}
        need("msync", msync(m, N, MS_ASYNC) == 0);
        char b[64];
        need("write", write(1, b, snprintf(b, sizeof b, "round %d\n", r)) > 0);
    }
    char *b = malloc(N);
    need("read", pread(fd, b, N, 0) == N);
    printf("digest %016lx, of the file %016lx\n", digest(m, N), digest(b, N));
    return done();
}
