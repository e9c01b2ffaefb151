/* A thread blocks a signal that another one takes, again and again and without SA_RESTART: no call of the first one ends early. */
#include "guest.h"
#include <poll.h>
#include <pthread.h>
#include <sys/time.h>

#define BYTES 12
#define MUCH (160 << 10)

static int asks[2], answers[2];
static volatile int taken;

static void on_alarm(int s) {
    (void)s;
    taken++;
}

static void *masked(void *v) {
    static char much[MUCH];
    struct pollfd p = {asks[0], POLLIN, 0};
    long came = 0;
    char byte;
    (void)v;
    while (came < BYTES && poll(&p, 1, 30000) == 1 && read(asks[0], &byte, 1) == 1) came++;
    while (came < 2 * BYTES && read(asks[0], &byte, 1) == 1) came++;
    check("reads and polls wait on", came == 2 * BYTES);
    check("a write is whole", write(answers[1], much, sizeof much) == sizeof much);
    return 0;
}

static void ring_every(long us) { setitimer(ITIMER_REAL, &(struct itimerval){{0, us}, {0, us}}, 0); }

int main(void) {
    static char piece[16384];
    sigset_t alarm, old;
    pthread_t t;
    need("pipe", pipe(asks) == 0 && pipe(answers) == 0);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm}, 0);
    sigemptyset(&alarm), sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, &old);
    need("pthread_create", pthread_create(&t, 0, masked, 0) == 0);
    pthread_sigmask(SIG_SETMASK, &old, 0);
    ring_every(3000);
    for (int sent = 0; sent < 2 * BYTES;) {
        usleep(1500);
        if (write(asks[1], "x", 1) == 1) sent++;
    }
    for (long left = MUCH; left > 0;) {
        long n = read(answers[0], piece, sizeof piece);
        left -= n > 0 ? n : 0;
        if (n == 0 || (n < 0 && errno != EINTR)) break;
    }
    ring_every(0);
    need("pthread_join", pthread_join(t, 0) == 0);
    check("the other thread took signals", taken > 3);
    return done();
}
