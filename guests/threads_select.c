/* What select, and ppoll without the C library, leave of their time, while another thread could go on: what bare Linux leaves. */
#define _GNU_SOURCE
#include "guest.h"
#include <poll.h>
#include <pthread.h>
#include <sys/select.h>

static int channel[2], last[2];

/* It writes after a fifth of a second, and stays until it is told. */
static void *writes(void *p) {
    char byte;
    usleep(200000);
    need("write", write(channel[1], "x", 1) == 1);
    need("told", !p || read(last[0], &byte, 1) == 1);
    return p;
}

static void waits(int stays, int by_poll) {
    pthread_t t;
    char byte;
    fd_set set;
    struct timeval v = {5, 0};
    struct timespec s = {5, 0};
    struct pollfd f = {.fd = channel[0], .events = POLLIN};
    FD_ZERO(&set);
    FD_SET(channel[0], &set);
    need("thread", pthread_create(&t, 0, writes, stays ? channel : 0) == 0);
    check("ready", (by_poll ? syscall(SYS_ppoll, &f, 1, &s, 0, 8) : select(channel[0] + 1, &set, 0, 0, &v)) == 1);
    double left = by_poll ? (double)s.tv_sec + (double)s.tv_nsec / 1e9 : (double)v.tv_sec + (double)v.tv_usec / 1e6;
    check("less than five seconds are left", left > 0 && left < 4.9);
    if (stays) need("tell", write(last[1], "x", 1) == 1);
    need("end", read(channel[0], &byte, 1) == 1 && pthread_join(t, 0) == 0);
}

int main(void) {
    struct timeval v = {0, 20000};
    pthread_t t;
    char byte;
    need("pipes", pipe(channel) == 0 && pipe(last) == 0);
    for (int i = 0; i < 4; i++) waits(i & 1, i & 2);
    need("thread", pthread_create(&t, 0, writes, 0) == 0);
    check("nothing", select(0, 0, 0, 0, &v) == 0 && v.tv_sec == 0 && v.tv_usec == 0);
    need("end", read(channel[0], &byte, 1) == 1 && pthread_join(t, 0) == 0);
    return done();
}
