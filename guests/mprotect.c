/* mprotect: a store to a read-only page faults with the right code and address; the handler makes it writable. */
#include "guest.h"

static volatile char *page;
static volatile int faults, code;
static volatile char *where;

static void on_fault(int s, siginfo_t *i, void *c) {
    (void)s, (void)c;
    faults++, code = i->si_code, where = i->si_addr;
    mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
}

int main(void) {
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &a, 0);
    page = mmap(0, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[5] = 1;
    check("protect", mprotect((void *)page, 4096, PROT_READ) == 0);
    page[5] = 2;
    check("one fault", faults == 1 && code == SEGV_ACCERR && where == page + 5 && page[5] == 2);
    mprotect((void *)page, 4096, PROT_NONE);
    int v = page[5];
    check("read of nothing", faults == 2 && v == 2);
    check("split in three", mprotect((void *)(page + 4096), 4096, PROT_READ) == 0 && page[4096] == 0);
    check("hole", munmap((void *)(page + 4096), 4096) == 0 && mprotect((void *)page, 3 * 4096, PROT_READ) == -1 && errno == ENOMEM);
    check("unaligned", mprotect((void *)(page + 1), 10, PROT_READ) == -1 && errno == EINVAL);
    return done();
}
