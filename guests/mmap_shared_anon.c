/* Anonymous shared memory within one process: two views of one memfd, and a plain shared anonymous mapping. */
#include "guest.h"

int main(void) {
    char *s = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", s != MAP_FAILED);
    memset(s, 3, 1 << 20);
    printf("digest %016lx\n", digest(s, 1 << 20));
    check("unmap", munmap(s, 1 << 20) == 0);
    return done();
}
