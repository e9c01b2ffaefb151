/* Dies of the signal named: of a fault it commits (abort, segv, null, fpe, ill, trap, bus, stack) or one it sends itself. */
#include "guest.h"

static char not_code[16];
static int recurse(volatile char *p) {
    volatile char frame[4096];
    frame[0] = p ? p[0] + 1 : 0;
    return recurse(frame) + frame[0];
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "abort";
    printf("dying by %s\n", how);
    fflush(stdout);
    volatile int zero = 0, one = 1;
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "segv")) *(volatile int *)0x7f00dead0000 = 1;
    if (!strcmp(how, "null")) *(volatile int *)(uintptr_t)zero = 1;
    if (!strcmp(how, "exec")) ((void (*)(void))not_code)();
    if (!strcmp(how, "fpe")) zero = one / zero;
    if (!strcmp(how, "ill")) __asm__ volatile("ud2");
    if (!strcmp(how, "trap")) __asm__ volatile("int3");
    if (!strcmp(how, "hlt")) __asm__ volatile("hlt");
    if (!strcmp(how, "stack")) return recurse(0);
    if (!strcmp(how, "bus")) {
        int fd = open("empty", O_RDWR | O_CREAT, 0600);
        char *p = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        return p[0];
    }
    return raise(atoi(how)); /* a number: 0 when that signal's default action lets the program live */
}
