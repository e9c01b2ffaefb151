/* A loop without a call that owns a spin lock but for a few instructions of each round. Whoever waits for it has to have his turn just
 * there, again and again: a thread, or (`processes`) a process that shares memory with it. */
#include "guest.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { WANTED = 3, WORK = 64 };

static struct shared {
    atomic_int lock, over;
    volatile unsigned long rounds;
    volatile unsigned work[WORK];
} *s;

static inline void acquire(void) {
    while (atomic_exchange(&s->lock, 1))
        ;
}

static inline void release(void) { atomic_store_explicit(&s->lock, 0, memory_order_release); }

static void *owns(void *p) {
    while (!s->over) {
        acquire();
#pragma GCC unroll 65534
        for (int i = 0; i < WORK; i++) s->work[i] = s->work[i] * 3 + 1;
        s->rounds++;
        release();
    }
    return p;
}

int main(int argc, char **argv) {
    int processes = argc > 1 && !strcmp(argv[1], "processes");
    pthread_t thread;
    pid_t child = 0;
    s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", s != MAP_FAILED);
    if (processes) {
        child = fork();
        need("fork", child >= 0);
        if (!child) _exit(owns(s) != s);
    } else {
        need("pthread_create", pthread_create(&thread, 0, owns, s) == 0);
    }
    int got = 0;
    for (unsigned long seen = 0; got < WANTED; got++) {
        while (s->rounds == seen)
            ;
        acquire();
        seen = s->rounds;
        release();
    }
    s->over = 1;
    int status = 0;
    need("the end", processes ? waitpid(child, &status, 0) == child : pthread_join(thread, 0) == 0);
    check("the lock was free when it was wanted", got == WANTED && status == 0);
    sink((void *)s->work, sizeof s->work);
    return done();
}
