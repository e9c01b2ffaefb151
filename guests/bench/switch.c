/* Threads that take turns, and a mutex that nobody else wants: nanoseconds on standard error, as micro.c. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static long turn, count;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Thread `me` of two goes on whenever `turn` is of its parity: one switch a turn. */
static void *take_turns(void *me)
{
    pthread_mutex_lock(&lock);
    while (turn < count) {
        if (turn % 2 == (long)(intptr_t)me) {
            turn++;
            pthread_cond_signal(&turned);
        } else {
            pthread_cond_wait(&turned, &lock);
        }
    }
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&lock);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t other;
    uint64_t start;

    count = argc > 2 ? atol(argv[2]) : 0;
    if (argc != 3 || count < 1 || (strcmp(argv[1], "cond") && strcmp(argv[1], "mutex"))) {
        fprintf(stderr, "usage: %s cond|mutex COUNT\n", argv[0]);
        return 64;
    }
    start = now_ns();
    if (!strcmp(argv[1], "cond")) {
        pthread_create(&other, NULL, take_turns, (void *)1);
        take_turns(NULL);
        pthread_join(other, NULL);
    } else {
        for (; turn < count; turn++) {
            pthread_mutex_lock(&lock);
            pthread_mutex_unlock(&lock);
        }
    }
    fprintf(stderr, "ns %llu\n", (unsigned long long)(now_ns() - start));
    printf("%s %ld\n", argv[1], turn);
    return turn != count;
}
