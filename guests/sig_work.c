/* A handler ends a computation without calls that is in another state at every instruction: what it has come to until
 * then is consistent, whenever that is. */
#include "guest.h"
#include <sys/time.h>

static volatile sig_atomic_t ticks;
static uint32_t table[4096];
static uint64_t rounds, sum;

static void tick(int s) { (void)s; ticks++; }

__attribute__((noinline)) static uint32_t mix(uint32_t a, uint32_t b) { return (a ^ b << 7) * 2654435761u + (b >> 3); }

static void round_of(uint32_t *t) {
    for (unsigned i = 0; i < 4096; i++) t[i] = mix(t[i], t[(i * 7 + 1) % 4096]);
}

int main(void) {
    struct itimerval every = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, tick);
    need("setitimer", setitimer(ITIMER_REAL, &every, 0) == 0);
    while (ticks < 2) {
        round_of(table);
        rounds++;
    }
    need("setitimer", setitimer(ITIMER_REAL, &never, 0) == 0);
    sum = digest(table, sizeof table);
    memset(table, 0, sizeof table);
    for (uint64_t i = 0; i < rounds; i++) round_of(table);
    check("as often again gives the same", digest(table, sizeof table) == sum);
    sink(&rounds, sizeof rounds);
    return done();
}
