/* munmap of the middle, of more than is mapped, of nothing; the hole faults with MAPERR. */
#include "guest.h"
#include <setjmp.h>

static sigjmp_buf back;
static void on(int s, siginfo_t *i, void *c) { (void)s, (void)c; siglongjmp(back, i->si_code); }

int main(void) {
    struct sigaction a = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &a, 0);
    char *p = mmap(0, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(p, 1, 16 * 4096);
    check("middle", munmap(p + 4 * 4096, 4 * 4096) == 0);
    int code = sigsetjmp(back, 1);
    if (!code) p[5 * 4096] = 1;
    check("hole faults", code == SEGV_MAPERR);
    check("neighbours live", p[3 * 4096] == 1 && p[8 * 4096] == 1);
    check("over the hole", munmap(p, 12 * 4096) == 0 && p[12 * 4096] == 1);
    check("of nothing", munmap(p, 4096) == 0);
    check("unaligned", munmap(p + 1, 4096) == -1 && errno == EINVAL);
    check("length 0", munmap(p, 0) == -1 && errno == EINVAL);
    return done();
}
