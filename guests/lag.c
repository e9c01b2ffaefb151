/* Uneven pace: bursts of calls, long computations, reads of large blocks: replicas run apart and must meet again. */
#include "guest.h"

int main(void) {
    static char b[1 << 20];
    int fd = open("/dev/zero", O_RDONLY);
    uint64_t x = 1;
    for (int r = 0; r < 30; r++) {
        for (int i = 0; i < 500; i++) x += syscall(SYS_getuid) == getuid();
        for (int i = 0; i < 300000; i++) x = x * 6364136223846793005u + 1442695040888963407u;
        need("read", read(fd, b, sizeof b) == sizeof b);
        x += digest(b, 4096 + r);
        printf("%d %016lx\n", r, x);
    }
    return done();
}
