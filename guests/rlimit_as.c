/* A limit on address space: a mapping within it works, one beyond it says ENOMEM and malloc copes. */
#include "guest.h"
#include <sys/resource.h>

int main(void) {
    struct rlimit r = {4ul << 30, 4ul << 30}; /* ample beside whatever a protector maps for itself */
    check("set", setrlimit(RLIMIT_AS, &r) == 0);
    void *p = mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check("64 MiB fits", p != MAP_FAILED);
    void *q = mmap(0, 8ul << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check("8 GiB does not", q == MAP_FAILED && errno == ENOMEM);
    check("malloc says so too", !malloc(8ul << 30) && errno == ENOMEM);
    check("a small one works", malloc(1000) != 0);
    return done();
}
