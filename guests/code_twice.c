/* Code that is written through one mapping of a file without a name and run through another (Erlang's JIT, libffi). Where
 * the system forbids that, as for this program under replicas, both are one mapping that is writable and executable. */
#include "guest.h"

static const unsigned char code[] = {0xb8, 0, 0, 0, 0, 0xc3}; /* mov eax,N; ret */

static int fd;

static unsigned char *map(int prot) {
    unsigned char *p = mmap(0, 8192, prot, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void two(const char *order, int first, int second) {
    fd = memfd_create("code", MFD_CLOEXEC);
    need("memfd", fd >= 0 && ftruncate(fd, 8192) == 0);
    unsigned char *a = map(first), *b = map(second), *w = first & PROT_WRITE ? a : b, *x = w == a ? b : a;
    need("the first one", a != NULL);
    if (!b) {
        need("forbidden", errno == EACCES && munmap(a, 8192) == 0);
        w = x = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    close(fd);
    int sum = 0;
    for (int i = 0; i < 100; i++) {
        memcpy(w, code, sizeof code);
        memcpy(w + 1, &i, sizeof i);
        sum += ((int (*)(void))x)();
    }
    printf("%s: %d\n", order, sum);
    fflush(stdout);
}

int main(void) {
    two("code first", PROT_READ | PROT_EXEC, PROT_READ | PROT_WRITE);
    two("code second", PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC);
    return done();
}
