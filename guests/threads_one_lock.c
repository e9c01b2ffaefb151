/* Threads that give a lock back and take it again at once, and make a call every thousand times: where they are made to give way, they
 * own it. Whoever sleeps for the lock has to get it, time and again: eight that do the same, and one that comes from a sleep; or
 * (`condition`) eight to whom a ninth gives work by a condition variable. */
#include "guest.h"
#include <pthread.h>

enum { THREADS = 8, WANTED = 10 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static volatile unsigned long rounds;
static volatile int over, jobs;
static int null;

static void again(void) {
    if (++rounds % 1000 == 0) need("write", write(null, "", 1) == 1);
    pthread_mutex_unlock(&lock);
    pthread_mutex_lock(&lock);
}

static void *takes(void *p) {
    pthread_mutex_lock(&lock);
    for (; !over; again()) rand();
    pthread_mutex_unlock(&lock);
    return p;
}

static void *gives_work(void *p) {
    pthread_mutex_lock(&lock);
    for (; !over; again()) {
        jobs = rand() % (THREADS + 1);
        if (rand() % 30 == 0) pthread_cond_broadcast(&work);
        else for (int left = jobs; left; left--) pthread_cond_signal(&work);
    }
    pthread_cond_broadcast(&work);
    pthread_mutex_unlock(&lock);
    return p;
}

static void *works(void *p) {
    pthread_mutex_lock(&lock);
    for (; !over; again()) {
        while (!jobs && !over) pthread_cond_wait(&work, &lock);
        --jobs;
    }
    pthread_mutex_unlock(&lock);
    return p;
}

int main(int argc, char **argv) {
    int condition = argc > 1 && !strcmp(argv[1], "condition"), threads = THREADS + condition, got = 0;
    pthread_t t[THREADS + 1];
    null = open("/dev/null", O_WRONLY);
    for (int i = 0; i < threads; i++)
        need("pthread_create", pthread_create(&t[i], NULL, !condition ? takes : i ? works : gives_work, NULL) == 0);
    usleep(300000);
    for (; got < WANTED; got++) {
        usleep(10000);
        pthread_mutex_lock(&lock);
        over = got == WANTED - 1;
        pthread_mutex_unlock(&lock);
    }
    for (int i = 0; i < threads; i++) need("pthread_join", pthread_join(t[i], NULL) == 0);
    check("whoever slept for the lock got it", got == WANTED);
    return done();
}
