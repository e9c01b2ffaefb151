/* The allocator under load: sizes from 1 byte to 1 MiB, realloc, calloc, aligned blocks, trim; content is checked. */
#include "guest.h"
#include <malloc.h>

static uint32_t seed = 12345;
static uint32_t rnd(void) { return (seed = seed * 1103515245 + 12345) >> 8; }

int main(void) {
    static unsigned char *p[500];
    static size_t n[500];
    int ok = 1;
    size_t total = 0;
    for (int i = 0; i < 40000; i++) {
        int k = rnd() % 500;
        if (p[k]) ok &= p[k][0] == (unsigned char)k && p[k][n[k] - 1] == (unsigned char)k;
        size_t want = 1 + (rnd() % 50 ? rnd() % 600 : rnd() % (1 << 20));
        switch (rnd() % 4) {
        case 0: free(p[k]), p[k] = malloc(want); break;
        case 1: p[k] = realloc(p[k], want); break;
        case 2: free(p[k]), p[k] = calloc(1, want), ok &= p[k][want / 2] == 0; break;
        default: free(p[k]), p[k] = aligned_alloc(64, (want + 63) & ~63ul), ok &= (uintptr_t)p[k] % 64 == 0;
        }
        n[k] = want, p[k][0] = p[k][want - 1] = k, total += want;
        if (i % 10000 == 0) sink(&p[k], 8);
    }
    check("content", ok);
    printf("%zu bytes in all\n", total);
    for (int k = 0; k < 500; k++) free(p[k]);
    return done();
}
