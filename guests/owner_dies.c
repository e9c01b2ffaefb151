/* A process that ends with a robust lock in memory that it shares: whoever asks next is told that the owner has died. It ends by itself,
 * by a signal of its own, from one of two threads, or while another of its threads has the lock. */
#include "guest.h"
#include <pthread.h>
#include <sys/wait.h>

static pthread_mutex_t *lock;
static int *volatile nowhere = (int *)8;

static void *locks(void *p) {
    pthread_mutex_lock(lock);
    return p;
}

static void *locks_and_stays(void *p) {
    locks(p);
    need("told", write(*(int *)p, "l", 1) == 1);
    for (;;) pause();
    return p;
}

static void end(int how) {
    pthread_t t;
    int told[2];
    char byte;
    if (how < 4) locks(0);
    if (how == 1) raise(SIGKILL);
    if (how == 2) raise(SIGTERM);
    if (how == 3) *nowhere = 0;
    if (how == 4) need("thread", pipe(told) == 0 && pthread_create(&t, 0, locks_and_stays, &told[1]) == 0 && read(told[0], &byte, 1) == 1);
    _exit(5);
}

int main(void) {
    pthread_mutexattr_t a;
    int status;
    lock = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", lock != MAP_FAILED);
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    need("mutex", pthread_mutex_init(lock, &a) == 0);
    for (int how = 0; how <= 4; how++) {
        pid_t child = fork();
        if (child == 0) end(how);
        check("ended", waitpid(child, &status, 0) == child);
        printf("%d: %x\n", how, status & 0xff7f);
        check("its owner has died", pthread_mutex_lock(lock) == EOWNERDEAD && pthread_mutex_consistent(lock) == 0);
        check("unlocked", pthread_mutex_unlock(lock) == 0);
        fflush(stdout);
    }
    return done();
}
