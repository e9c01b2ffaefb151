/* A process that somebody kills while it has robust locks in memory that it shares: who waits for one of them, or asks for it next, is
 * told that the owner has died. */
#include "guest.h"
#include <pthread.h>
#include <sys/wait.h>

enum { LOCKS = 3 };

static struct shared {
    pthread_mutex_t lock[LOCKS];
} *s;

static void rest(long ms) {
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
    nanosleep(&t, NULL);
}

static void *locks(void *p) {
    for (int i = 0; i < LOCKS; i++) need("lock", pthread_mutex_lock(&s->lock[i]) == 0);
    need("told", write(*(int *)p, "l", 1) == 1);
    for (;;) pause();
    return p;
}

/* A child has all locks, its first thread or another one. */
static pid_t owner(int threads) {
    int told[2];
    char byte;
    pthread_t t;
    fflush(stdout);
    need("pipe", pipe(told) == 0);
    pid_t child = fork();
    if (child == 0) {
        if (threads) need("thread", pthread_create(&t, NULL, locks, &told[1]) == 0);
        if (!threads) locks(&told[1]);
        for (;;) pause();
    }
    need("locked", read(told[0], &byte, 1) == 1);
    close(told[0]);
    close(told[1]);
    return child;
}

static void takes(int i) {
    int r = pthread_mutex_lock(&s->lock[i]);
    printf("lock %d: %d\n", i, r);
    if (r == EOWNERDEAD) check("usable again", pthread_mutex_consistent(&s->lock[i]) == 0);
    check("given back", pthread_mutex_unlock(&s->lock[i]) == 0);
}

static void *waits(void *p) {
    int *r = p, i = *r;
    *r = pthread_mutex_lock(&s->lock[i]);
    pthread_mutex_consistent(&s->lock[i]);
    pthread_mutex_unlock(&s->lock[i]);
    return p;
}

static int status_of(pid_t child) {
    int status;
    need("wait", waitpid(child, &status, 0) == child);
    return status;
}

/* Killed first, and then asked for. */
static void before(int threads) {
    pid_t child = owner(threads);
    kill(child, SIGKILL);
    printf("killed: %x\n", status_of(child));
    for (int i = 0; i < LOCKS; i++) takes(i);
}

/* Others wait already: a process of one thread, and one beside which another thread goes on. */
static void meanwhile(void) {
    pid_t child = owner(0);
    pid_t waiter = fork();
    if (waiter == 0) {
        int r = 0;
        waits(&r);
        _exit(r);
    }
    pid_t threaded = fork();
    if (threaded == 0) {
        pthread_t t;
        int r = 1;
        need("thread", pthread_create(&t, NULL, waits, &r) == 0);
        for (int i = 0; i < 20; i++) rest(20);
        pthread_join(t, NULL);
        _exit(r);
    }
    rest(200);
    kill(child, SIGKILL);
    printf("killed: %x\n", status_of(child));
    printf("waiter: %d\n", WEXITSTATUS(status_of(waiter)));
    printf("with a thread beside it: %d\n", WEXITSTATUS(status_of(threaded)));
    takes(2);
}

/* A limit ends the wait for an owner that lives. */
static void limited(void) {
    pid_t child = owner(0);
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += (at.tv_nsec + 200000000) / 1000000000;
    at.tv_nsec = (at.tv_nsec + 200000000) % 1000000000;
    printf("alive: %d\n", pthread_mutex_timedlock(&s->lock[0], &at));
    kill(child, SIGKILL);
    status_of(child);
    at.tv_sec += 20;
    printf("dead: %d\n", pthread_mutex_timedlock(&s->lock[0], &at));
    pthread_mutex_consistent(&s->lock[0]);
    pthread_mutex_unlock(&s->lock[0]);
}

int main(void) {
    pthread_mutexattr_t a;
    s = mmap(0, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", s != MAP_FAILED);
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    for (int i = 0; i < LOCKS; i++) need("mutex", pthread_mutex_init(&s->lock[i], &a) == 0);
    before(0);
    before(1);
    meanwhile();
    limited();
    return done();
}
