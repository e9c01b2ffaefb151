/* A process that shares memory with its child. Tests kill its leader, while it waits and while it has its turn. What the two make
 * of the memory in turn is the same in the end. It does not wait for its child, which a leader made again could not. */
#include "guest.h"
#include <stdatomic.h>

enum { ROUNDS = 400 };

static struct {
    atomic_int turn;
    unsigned long sum, bytes[512];
} *s;

__attribute__((noinline)) static void await(int turn) {
    while (atomic_load(&s->turn) != turn)
        usleep(500);
}

/* Where tests let a fault strike. */
__attribute__((noinline)) static void step(unsigned long by) {
    s->sum = s->sum * 1099511628211ul ^ by;
    s->bytes[s->sum % 512] += by;
}

int main(void) {
    s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", s != MAP_FAILED);
    if (fork() == 0) {
        alarm(60); /* a parent that has ended for good */
        for (unsigned long i = 0; i < ROUNDS; i++) {
            await(1);
            step(2 * i + 1);
            atomic_store(&s->turn, 0);
        }
        _exit(0);
    }
    for (unsigned long i = 0; i < ROUNDS; i++) {
        step(2 * i);
        atomic_store(&s->turn, 1);
        await(0);
    }
    unsigned long digest = s->sum;
    for (int i = 0; i < 512; i++)
        digest = digest * 31 + s->bytes[i];
    printf("%lx\n", digest);
    return done();
}
