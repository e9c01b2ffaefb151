/* A thread waits in vain for a semaphore of System V, and for so long, while another one goes on. */
#define _GNU_SOURCE
#include "guest.h"
#include <pthread.h>
#include <sys/ipc.h>
#include <sys/sem.h>

static int set;

static void *waits(void *p) {
    struct sembuf down = {0, -1, 0};
    struct timespec limit = {0, 100000000};
    errno = 0;
    check("in vain", semtimedop(set, &down, 1, &limit) == -1 && errno == EAGAIN);
    return p;
}

int main(void) {
    pthread_t t;
    struct timespec nap = {0, 10000000};
    set = semget(IPC_PRIVATE, 1, 0600);
    need("set", set >= 0 && pthread_create(&t, 0, waits, 0) == 0);
    for (int i = 0; i < 30; i++) nanosleep(&nap, 0);
    check("joined", pthread_join(t, 0) == 0);
    check("removed", semctl(set, 0, IPC_RMID) == 0);
    return done();
}
