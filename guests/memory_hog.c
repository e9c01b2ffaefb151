/* Takes memory until it is refused (at most the MiB given), says how far it came in steps of 64, and exits. */
#include "guest.h"

int main(int argc, char **argv) {
    int most = argc > 1 ? atoi(argv[1]) : 256, got = 0;
    for (; got < most; got += 16) {
        char *p = mmap(0, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) break;
        memset(p, 1, 16 << 20);
        if (got % 64 == 0) printf("%d\n", got), fflush(stdout);
    }
    check("all", got >= most);
    return done();
}
