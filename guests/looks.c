/* One thread waits with a deadline while another one computes between its events: behind each of them comes a look whether the first one
 * could go on, and often a memory check before that. `shared`: with memory that another process has, and a turn among processes behind
 * the look. */
#include "guest.h"
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>

enum { ROUNDS = 20, PASSES = 15 * 1000 * 1000, TURNS = 150, PASSES_OF_TURN = 500 * 1000 };
/* Nobody reads it. */
char unread[4096];

__attribute__((noinline)) static void flip_here(void) { __asm__ volatile("nop; nop; nop; nop; nop" ::: "memory"); }

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int over;
static volatile int waiting;

static void *waits(void *unused) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 600;
    pthread_mutex_lock(&lock);
    waiting = 1;
    while (!over) pthread_cond_timedwait(&changed, &lock, &until);
    pthread_mutex_unlock(&lock);
    return unused;
}

/* Another process, which waits for the end of this one's part. */
static int shares(pid_t *child) {
    int ends[2];
    char byte;
    need("mmap", mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    need("pipe", pipe(ends) == 0);
    need("fork", (*child = fork()) >= 0);
    if (*child == 0) {
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) != 0);
    }
    close(ends[0]);
    return ends[1];
}

int main(int argc, char **argv) {
    const int shared = argc > 1 && !strcmp(argv[1], "shared");
    const int rounds = shared ? TURNS : ROUNDS, passes = shared ? PASSES_OF_TURN : PASSES;
    volatile unsigned long sum = 0;
    pthread_t other;
    pid_t child = 0;
    int status = 0, end = shared ? shares(&child) : -1;
    memset(unread, 1, sizeof unread);
    need("pthread_create", pthread_create(&other, 0, waits, 0) == 0);
    while (!waiting) sched_yield();
    pthread_mutex_lock(&lock); /* it waits by now */
    pthread_mutex_unlock(&lock);
    for (int round = 0; round < rounds; round++) {
        for (int pass = 0; pass < passes; pass++) sum = ~sum / 3 + (unsigned long)pass;
        flip_here();
        printf("%d %lu\n", round, sum);
        fflush(stdout);
    }
    pthread_mutex_lock(&lock);
    over = 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    need("pthread_join", pthread_join(other, 0) == 0);
    if (shared) close(end), need("waitpid", waitpid(child, &status, 0) == child);
    return status;
}
