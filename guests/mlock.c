/* mlock, mincore, mlockall and the limit on locked memory. */
#include "guest.h"
#include <sys/resource.h>

int main(void) {
    unsigned char v[4] = {0};
    char *p = mmap(0, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    p[4096] = 1;
    check("mincore", mincore(p, 4 * 4096, v) == 0 && (v[1] & 1));
    check("mlock", mlock(p, 8192) == 0 && mincore(p, 4 * 4096, v) == 0 && (v[0] & 1));
    check("munlock", munlock(p, 8192) == 0);
    check("unmapped", munmap(p, 4096) == 0 && mlock(p, 4096) == -1 && errno == ENOMEM);
    return done();
}
