/* qsort of a million integers and of ten thousand strings; a digest of the order. */
#include "guest.h"

static int num(const void *a, const void *b) { uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b; return x < y ? -1 : x > y; }
static int str(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int main(void) {
    enum { N = 1000000, S = 10000 };
    uint32_t *v = malloc(N * sizeof *v), x = 2463534242;
    char **s = malloc(S * sizeof *s), line[32];
    for (int i = 0; i < N; i++) v[i] = x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    qsort(v, N, sizeof *v, num);
    for (int i = 0; i < S; i++) snprintf(line, sizeof line, "k%08x", v[i * 97 % N] * 2654435761u), s[i] = strdup(line);
    qsort(s, S, sizeof *s, str);
    printf("%08x %08x %016lx %s\n", v[0], v[N - 1], digest(v, N * sizeof *v), s[S / 2]);
    return done();
}
