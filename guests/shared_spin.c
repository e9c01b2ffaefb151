/* Processes that share memory and wait for each other by looks alone: a flag, Peterson's lock, a word that goes to and fro. Nobody
 * makes a call meanwhile, so each of them has to be held up for the other one to go on. */
#include "guest.h"
#include <stdatomic.h>
#include <sys/wait.h>

enum { ROUNDS = 6, LOCKED = 2000 };

static struct {
    atomic_int ready, ball, wants[2], turn;
    long counted; /* under the lock */
} *s;

static void lock(int me) {
    atomic_store(&s->wants[me], 1);
    atomic_store(&s->turn, !me);
    while (atomic_load(&s->wants[!me]) && atomic_load(&s->turn) == !me)
        ;
}

static void play(int me) {
    for (int i = 0; i < ROUNDS; i++) {
        while (atomic_load(&s->ball) % 2 != me)
            ;
        atomic_fetch_add(&s->ball, 1);
    }
    for (int i = 0; i < LOCKED; i++) {
        lock(me);
        s->counted++;
        atomic_store(&s->wants[me], 0);
    }
}

int main(void) {
    s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", s != MAP_FAILED);
    pid_t child = fork();
    need("fork", child >= 0);
    if (child == 0) {
        atomic_store(&s->ready, 1);
        play(1);
        _exit(0);
    }
    while (!atomic_load(&s->ready))
        ;
    play(0);
    int status;
    need("waitpid", waitpid(child, &status, 0) == child && status == 0);
    printf("ball %d, counted %ld\n", atomic_load(&s->ball), s->counted);
    return 0;
}
