/* A second thread is parked with its state in registers, on its stack and in vectors, while the first makes many calls; then both go on. */
#include "guest.h"
#include <pthread.h>
#include <semaphore.h>

enum { CALLS = 1000 };
static sem_t go, there;
static __thread uint64_t own = 5;

static void *keeps(void *p) {
    uint64_t sum = (uint64_t)(long)p, kept[16];
    double half = 0.5;
    own += sum;
    for (int i = 0; i < 16; i++) kept[i] = sum * 0x9e3779b97f4a7c15u + (uint64_t)i;
    for (int round = 0; round < 3; round++) {
        sem_post(&there);
        sem_wait(&go);
        half += (double)round;
        for (int i = 0; i < 16; i++) sum = sum * 31 + kept[i];
    }
    own += sum + (uint64_t)(half * 2);
    printf("kept %016llx\n", (unsigned long long)own);
    return (void *)(long)(own >> 8);
}

int main(void) {
    pthread_t t;
    void *v;
    uint64_t sum = 0;
    sem_init(&go, 0, 0), sem_init(&there, 0, 0);
    pthread_create(&t, 0, keeps, (void *)7);
    for (int round = 0; round < 3; round++) {
        sem_wait(&there);
        for (int i = 0; i < CALLS; i++) sum += (uint64_t)getppid() != 0;
        sem_post(&go);
    }
    check("joined", pthread_join(t, &v) == 0);
    printf("%d calls, %lx\n", (int)sum, (long)v);
    return done();
}
