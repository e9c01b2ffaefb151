/* A heap of several huge pages by brk: steps of malloc's size, trimming, growth again with zeroed pages, pages
 * of it closed and moved, and mappings where the heap would go on. */
#include "guest.h"

enum { STEP = 132 << 10, PAGE = 4096 };

static int zero(const char *p, const char *end) {
    for (; p < end; p++)
        if (*p) return 0;
    return 1;
}

static char *up(char *p) { return (char *)(((uintptr_t)p + PAGE - 1) & -(uintptr_t)PAGE); }

int main(void) {
    puts("start"); /* stdio takes its buffer from the heap below, before it moves */
    char *base = sbrk(0);
    int zeroed = 1, kept = 1;
    for (int i = 0; i < 60; i++) {
        char *old = sbrk(STEP);
        need("sbrk", old == base + (size_t)i * (STEP - 12288));
        zeroed &= zero(up(old), old + STEP);
        memset(old, i + 1, STEP);
        need("trim", brk(old + STEP - 12288) == 0);
    }
    for (int i = 0; i < 60; i++) kept &= base[(size_t)i * (STEP - 12288)] == (char)(i + 1);
    check("new pages are zero", zeroed);
    check("old pages are kept", kept);
    printf("content %016llx\n", (unsigned long long)digest(base, (size_t)((char *)sbrk(0) - base)));

    /* Down by more than a huge page and within one, to the byte; what lay behind in the last page stays. */
    char *half = up(base + (3 << 20)) + 100;
    half[50] = 77;
    check("shrink", brk(half) == 0 && sbrk(0) == half);
    check("grow again", brk(half + (1 << 20)) == 0);
    check("the last page keeps its bytes", half[50] == 77);
    check("pages behind it are zero", zero(up(half), half + (1 << 20)));
    memset(half, 5, 1 << 20);
    check("shrink a little", brk(half + 5000) == 0);
    check("and grow", brk(half + 50000) == 0 && zero(up(half + 5000), half + 50000));

    /* Closed and opened again: a copy made of the heap has to close it too. */
    char *closed = up(base + (1 << 20));
    check("close", mprotect(closed, 3 * PAGE, PROT_READ) == 0);
    check("grow behind it", brk(half + (5 << 20)) == 0);
    memset(half + (4 << 20), 9, 1 << 20);
    check("open", mprotect(closed, 3 * PAGE, PROT_READ | PROT_WRITE) == 0);
    closed[1] = 1;

    /* A mapping right behind the break belongs to the program, and stops the heap. */
    char *behind = up(sbrk(0));
    char *map = mmap(behind, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    check("a mapping behind the break", map == behind);
    if (map != behind) return 1;
    *map = 3;
    check("the heap ends there", brk(behind + 2 * PAGE) == -1 && sbrk(0) <= (void *)behind);
    check("it is not touched", brk(behind - 10 * PAGE) == 0 && *map == 3);
    check("and goes on after it", munmap(map, PAGE) == 0 && brk(behind + 2 * PAGE) == 0);
    printf("content %016llx\n", (unsigned long long)digest(base, (size_t)(behind - base)));
    sink(&base, sizeof base);
    return done();
}
