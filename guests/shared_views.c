/* A file with a name that several processes of a program map shared, as a database's or a name server's: counters under a lock of
 * the C library, a semaphore, a flag that is only looked at, more than the pages that are looked at one by one, and calls on the
 * file in between. */
#include "guest.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/wait.h>

enum { CHILDREN = 3, ROUNDS = 300, LARGE = 1 << 20 };

struct shared {
    pthread_mutex_t lock;
    pthread_cond_t all_there;
    sem_t go;
    atomic_int flag, ball;
    int there;
    long counted[2];
};

static int fd;
struct shared *shared; /* a campaign strikes it by its name */

static void *map(size_t bytes, off_t from) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, from);
    need("mmap", at != MAP_FAILED);
    return at;
}

static struct shared *initialised(struct shared *s) {
    pthread_mutexattr_t lock;
    pthread_condattr_t condition;
    pthread_mutexattr_init(&lock);
    pthread_condattr_init(&condition);
    need("attributes", !pthread_mutexattr_setpshared(&lock, PTHREAD_PROCESS_SHARED) &&
                           !pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED));
    need("lock", !pthread_mutex_init(&s->lock, &lock) && !pthread_cond_init(&s->all_there, &condition));
    need("semaphore", sem_init(&s->go, 1, 0) == 0);
    return s;
}

static void count(struct shared *s, unsigned char *large, int me) {
    pthread_mutex_lock(&s->lock);
    if (++s->there == CHILDREN) pthread_cond_broadcast(&s->all_there);
    while (s->there < CHILDREN) pthread_cond_wait(&s->all_there, &s->lock);
    pthread_mutex_unlock(&s->lock);
    sem_wait(&s->go);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&s->lock);
        s->counted[0]++;
        if (i % 50 == me) sched_yield();
        s->counted[1] += me;
        pthread_mutex_unlock(&s->lock);
        large[(i * 4096 + me) % LARGE] += (unsigned char)(me + 1);
    }
}

/* Another program, which finds the file by its name. */
static int worker(void) {
    fd = open("shared_views.data", O_RDWR);
    need("open by name", fd >= 0);
    struct shared *s = map(8192, 0);
    sem_wait(&s->go);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&s->lock);
        s->counted[1]++;
        if (i % 70 == 0) sched_yield();
        pthread_mutex_unlock(&s->lock);
    }
    return 0;
}

/* Nobody makes a call: each has to be held up for the other one to go on. */
static void play(struct shared *s, int me) {
    for (int i = 0; i < 4; i++) {
        while (atomic_load(&s->ball) % 2 != me)
            ;
        atomic_fetch_add(&s->ball, 1);
    }
}

static int sum_of(const unsigned char *large) {
    int sum = 0;
    for (int i = 0; i < LARGE; i++) sum += large[i];
    return sum;
}

__attribute__((noinline)) void report(const long counted[2], int sum) {
    printf("%ld %ld %d\n", counted[0], counted[1], sum);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc > 1) return worker();
    fd = open("shared_views.data", O_RDWR | O_CREAT | O_TRUNC, 0600);
    need("open", fd >= 0 && ftruncate(fd, 8192 + LARGE) == 0);
    struct shared *s = shared = initialised(map(8192, 0));
    unsigned char *large = map(LARGE, 8192);
    large[LARGE - 1] = 1;
    fflush(stdout);
    for (int me = 0; me < CHILDREN; me++)
        if (fork() == 0) {
            count(s, large, me);
            _exit(0);
        }
    if (fork() == 0) {
        execl("/proc/self/exe", argv[0], "worker", NULL);
        _exit(127);
    }
    for (int me = 0; me < CHILDREN + 1; me++) sem_post(&s->go);
    for (int me = 0; me < CHILDREN + 1; me++) {
        int status;
        need("child", wait(&status) > 0 && status == 0);
    }
    report(s->counted, sum_of(large));
    /* What was stored is in the file, and what a call writes to it is in the memory. */
    long seen[2];
    need("pread", pread(fd, seen, sizeof seen, offsetof(struct shared, counted)) == sizeof seen);
    printf("%ld %ld\n", seen[0], seen[1]);
    pid_t child = fork();
    if (child == 0) {
        long by_call = 77;
        need("pwrite", pwrite(fd, &by_call, sizeof by_call, offsetof(struct shared, counted)) == sizeof by_call);
        need("a page", pwrite(fd, "\7", 1, 8192 + LARGE - 1) == 1);
        atomic_store(&s->flag, 1);
        play(s, 1);
        _exit(s->counted[0] != 77);
    }
    while (!atomic_load(&s->flag))
        ;
    printf("%ld %d\n", s->counted[0], large[LARGE - 1]);
    play(s, 0);
    int status;
    need("last child", waitpid(child, &status, 0) == child && status == 0);
    printf("ball %d\n", atomic_load(&s->ball));
    return done();
}
