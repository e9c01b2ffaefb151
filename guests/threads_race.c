/* Data races, Peterson's and Dekker's locks, publication by plain stores: whatever comes of it comes of it in every replica. With an
 * argument the schedule is printed as well, which is another one each time. */
#include "guest.h"
#include <pthread.h>
#include <sched.h>

enum { ROUNDS = 2000 };
static volatile unsigned racy, progress[2], flag[2], turn, inside, overlaps, message, ready, order[64], orders;
static volatile int dekker;

static void lock(unsigned i) {
    if (dekker) {
        flag[i] = 1;
        __sync_synchronize();
        while (flag[!i]) {
            if (turn != i) {
                flag[i] = 0;
                while (turn != i) sched_yield();
                flag[i] = 1;
                __sync_synchronize();
            }
            sched_yield();
        }
        return;
    }
    flag[i] = 1;
    turn = !i;
    __sync_synchronize();
    while (flag[!i] && turn == !i) sched_yield();
}

static void unlock(unsigned i) {
    __sync_synchronize();
    turn = !i;
    flag[i] = 0;
}

static void *runs(void *p) {
    unsigned i = (unsigned)(long)p;
    for (int k = 0; k < ROUNDS; k++) {
        unsigned v = racy;
        if (k % 7 == 0) (void)getppid();
        if (k % 64 == 0) sched_yield();
        racy = v + 1;
        progress[i]++;
        if (k % 100 == 0 && orders < 64) order[orders++] = i * 10000 + racy;
    }
    for (int k = 0; k < 200; k++) {
        lock(i);
        if (inside++) overlaps++;
        if (k % 8 == 0) sched_yield();
        inside--;
        unlock(i);
    }
    return 0;
}

static void *publishes(void *p) {
    (void)p;
    message = 42;
    ready = 1;
    return 0;
}

int main(int argc, char **argv) {
    (void)argv;
    pthread_t t[2];
    for (dekker = 0; dekker < 2; dekker++) {
        for (long i = 0; i < 2; i++) need("pthread_create", pthread_create(&t[i], 0, runs, (void *)i) == 0);
        for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    }
    check("both ran", progress[0] == 2 * ROUNDS && progress[1] == 2 * ROUNDS && racy > 0);
    check("one at a time", !overlaps);
    sink((void *)&racy, sizeof racy); /* a schedule's own */
    sink((void *)order, sizeof order);
    if (argc > 1) printf("schedule %016lx, %u\n", digest((void *)order, sizeof order), racy);
    need("pthread_create", pthread_create(t, 0, publishes, 0) == 0);
    while (!ready) sched_yield();
    check("published", message == 42 && pthread_join(t[0], 0) == 0);
    return done();
}
