/* Memory that parent and child share over fork: plain stores in turn, a lock-free counter, a process-shared mutex with a
 * condition, a semaphore. Who comes when differs from run to run; what is printed does not. */
#include "guest.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { ROUNDS = 200, WORKERS = 3 };

static struct shared {
    long unread;
    volatile int turn;
    volatile long racy;
    atomic_long sum;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    long locked, order[WORKERS * ROUNDS];
    int n, stage;
    sem_t ready, room;
    char ring[16];
    unsigned put, got;
} *s;

static void worker(int id) {
    for (int i = 0; i < ROUNDS; i++) {
        atomic_fetch_add(&s->sum, id + 1);
        long seen = s->racy;
        s->racy = seen * 31 + id;
        pthread_mutex_lock(&s->lock);
        s->order[s->n++] = id;
        s->locked += id;
        pthread_mutex_unlock(&s->lock);
        if (i % 7 == id)
            sched_yield();
    }
    pthread_mutex_lock(&s->lock);
    s->stage++;
    pthread_cond_broadcast(&s->changed);
    while (s->stage < WORKERS)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* Where tests let a fault strike. */
__attribute__((noinline)) static void report(void) {
    printf("sum %ld, locked %ld, %d entries\n", atomic_load(&s->sum), s->locked, s->n);
}

/* Plain stores alone: each waits for its turn, and gives way while it waits. */
static void ping(int id) {
    for (int i = 0; i < ROUNDS; i++) {
        while (s->turn % 2 != id)
            sched_yield();
        s->turn++;
    }
}

static void produce(void) {
    for (unsigned i = 0; i < 1000; i++) {
        sem_wait(&s->room);
        s->ring[s->put++ % sizeof s->ring] = (char)(i * 7);
        sem_post(&s->ready);
    }
}

static unsigned consume(void) {
    unsigned sum = 0;
    for (unsigned i = 0; i < 1000; i++) {
        sem_wait(&s->ready);
        sum = sum * 17 + (unsigned char)s->ring[s->got++ % sizeof s->ring];
        sem_post(&s->room);
    }
    return sum;
}

static void join(int n) {
    int status;
    while (n-- > 0) {
        need("wait", wait(&status) > 0);
        need("child", WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

int main(void) {
    pthread_mutexattr_t ma;
    pthread_condattr_t ca;
    s = mmap(NULL, sizeof *s + 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", s != MAP_FAILED);
    pthread_mutexattr_init(&ma);
    pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&s->lock, &ma);
    pthread_condattr_init(&ca);
    pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&s->changed, &ca);
    sem_init(&s->ready, 1, 0);
    sem_init(&s->room, 1, sizeof s->ring);
    fflush(stdout);
    for (int id = 0; id < WORKERS; id++)
        if (fork() == 0) {
            worker(id);
            _exit(0);
        }
    join(WORKERS);
    report();

    /* The order differs between runs, and is the same in all replicas: it leaves the program as a digest of itself. */
    unsigned long digest = (unsigned long)s->racy;
    for (int i = 0; i < s->n; i++)
        digest = digest * 1099511628211ul ^ (unsigned long)s->order[i];
    sink(&digest, sizeof digest);

    fflush(stdout);
    if (fork() == 0) {
        ping(1);
        _exit(0);
    }
    ping(0);
    join(1);
    printf("turn %d\n", s->turn);

    fflush(stdout);
    if (fork() == 0) {
        produce();
        _exit(0);
    }
    printf("consumed %u\n", consume());
    join(1);

    /* A grandchild, and bytes that the kernel brings into shared memory. */
    int fds[2];
    char *page = (char *)s + 8192;
    need("pipe", pipe(fds) == 0);
    fflush(stdout);
    if (fork() == 0) {
        if (fork() == 0) {
            need("write", write(fds[1], "from below", 11) == 11);
            _exit(0);
        }
        need("read", read(fds[0], page, 11) == 11);
        join(1);
        _exit(0);
    }
    join(1);
    printf("%s\n", page);
    need("munmap", munmap(s, sizeof *s + 8192) == 0);
    return done();
}
