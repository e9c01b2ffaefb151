/* Threads in processes that share memory: who of which process comes when differs from run to run, what is printed does not. */
#include "guest.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { ROUNDS = 100, THREADS = 3, PROCESSES = 2 };

static struct shared {
    atomic_long sum;
    pthread_mutex_t lock, owned, robust;
    pthread_cond_t changed;
    sem_t items, never;
    int turn, busy, mine, twice, order[PROCESSES * THREADS * ROUNDS], n;
} *s;

static int fds[2];

/* Waits for others by condition, semaphore and lock, while a thread beside it computes and reads. */
static void *works(void *p) {
    long id = (long)p;
    for (int i = 0; i < ROUNDS; i++) {
        atomic_fetch_add(&s->sum, id + 1);
        pthread_mutex_lock(&s->lock);
        s->order[s->n++] = (int)id;
        pthread_mutex_unlock(&s->lock);
        if (i % 16 == id)
            sched_yield();
        /* Its owner is a thread of one process: nobody else is taken for it. */
        pthread_mutex_lock(&s->owned);
        s->twice += pthread_mutex_lock(&s->owned) != EDEADLK;
        s->busy += s->mine++;
        sched_yield();
        s->mine--;
        pthread_mutex_unlock(&s->owned);
    }
    pthread_mutex_lock(&s->lock);
    while (s->turn % (PROCESSES * THREADS) != id)
        pthread_cond_wait(&s->changed, &s->lock);
    s->turn++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void *pauses(void *p) {
    for (;;)
        pause();
    return p;
}

/* Nobody posts this one: the time is over, and other threads go on meanwhile. */
static void *in_vain(void *p) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += 30 * 1000 * 1000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    int r;
    while ((r = sem_timedwait(&s->never, &at)) < 0 && errno == EINTR)
        ;
    *(int *)p = r < 0 && errno == ETIMEDOUT;
    return NULL;
}

static void *waits(void *p) {
    int *got = p;
    for (int i = 0; i < ROUNDS; i++) {
        sem_wait(&s->items);
        (*got)++;
    }
    return NULL;
}

static void *reads(void *p) {
    char c;
    for (int i = 0; i < ROUNDS; i++)
        *(int *)p += read(fds[0], &c, 1) == 1;
    return NULL;
}

/* A thread ends with the lock; a process that waits for it learns so. */
static void *dies_with(void *p) {
    pthread_mutex_lock(&s->robust);
    sem_post(&s->items);
    struct timespec t = { 0, 20 * 1000 * 1000 };
    nanosleep(&t, NULL);
    return p;
}

static void process(long number) {
    pthread_t t[THREADS], late;
    int over = 0;
    need("thread", pthread_create(&late, NULL, in_vain, &over) == 0);
    for (long i = 0; i < THREADS; i++)
        need("thread", pthread_create(&t[i], NULL, works, (void *)(number * THREADS + i)) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    pthread_join(late, NULL);
    _exit(!over);
}

static void join(int n) {
    int status;
    while (n-- > 0) {
        need("wait", wait(&status) > 0);
        check("child", WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void prepare(void) {
    pthread_mutexattr_t ma;
    pthread_condattr_t ca;
    s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", s != MAP_FAILED && pipe(fds) == 0);
    pthread_mutexattr_init(&ma);
    pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&s->lock, &ma);
    pthread_mutexattr_settype(&ma, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&s->owned, &ma);
    pthread_mutexattr_settype(&ma, PTHREAD_MUTEX_NORMAL);
    pthread_mutexattr_setrobust(&ma, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&s->robust, &ma);
    pthread_condattr_init(&ca);
    pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&s->changed, &ca);
    sem_init(&s->items, 1, 0);
    sem_init(&s->never, 1, 0);
}

/* Where tests let a fault strike. */
__attribute__((noinline)) static void report(void) {
    printf("sum %ld, %d entries, %d with the lock twice, %d at once, turn %d\n", atomic_load(&s->sum), s->n, s->twice, s->busy, s->turn);
}

int main(void) {
    pthread_t a, b;
    int got = 0, read_n = 0;
    prepare();
    fflush(stdout);
    for (long i = 0; i < PROCESSES; i++)
        if (fork() == 0)
            process(i);
    join(PROCESSES);
    report();
    unsigned long digest = 0;
    for (int i = 0; i < s->n; i++)
        digest = digest * 1099511628211ul ^ (unsigned long)s->order[i];
    sink(&digest, sizeof digest);

    /* A fork out of a program with threads: they wait for what the child does, one in the kernel and one for a word of both. */
    need("thread", pthread_create(&a, NULL, waits, &got) == 0 && pthread_create(&b, NULL, reads, &read_n) == 0);
    fflush(stdout);
    if (fork() == 0) {
        for (int i = 0; i < ROUNDS; i++) {
            sem_post(&s->items);
            if (write(fds[1], "x", 1) != 1)
                _exit(1);
        }
        _exit(0);
    }
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    join(1);
    printf("%d posted, %d read\n", got, read_n);

    fflush(stdout);
    if (fork() == 0) {
        need("thread", pthread_create(&a, NULL, dies_with, NULL) == 0);
        pthread_join(a, NULL);
        struct timespec t = { 0, 50 * 1000 * 1000 };
        nanosleep(&t, NULL);
        _exit(0);
    }
    sem_wait(&s->items);
    check("the owner has died", pthread_mutex_lock(&s->robust) == EOWNERDEAD);
    join(1);

    fflush(stdout);
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        need("thread", pthread_create(&a, NULL, pauses, NULL) == 0);
        s->turn = -1;
        pthread_kill(a, SIGUSR2);
        pthread_join(a, NULL);
        _exit(0);
    }
    check("ended", waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR2);
    check("by a signal to its thread", s->turn == -1);
    return done();
}
