/* Messages to local sockets, of a thread that is to wait only where there is no room: half of the buffer is in use already, or
 * the queue of a receiver to which the socket is not connected is full. */
#define _GNU_SOURCE
#include "guest.h"
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#define BIG 60000
#define SMALL 20
#define QUEUE 100 /* more than a receiver's queue holds */

static char big[BIG], room[BIG];
static struct sockaddr_un to = {.sun_family = AF_UNIX};
static socklen_t to_bytes;
static int ends[2];
static sem_t two_sent;

static void *sends(void *stream) {
    struct iovec parts[2] = {{big, BIG / 2}, {big, BIG / 2}};
    const struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
    long bytes = write(ends[0], big, BIG);
    bytes += stream ? write(ends[0], big, BIG) : writev(ends[0], parts, 2);
    sem_post(&two_sent);
    bytes += sendmsg(ends[0], &m, 0) + send(ends[0], big, BIG, 0);
    for (int i = 0; i < SMALL; i++) bytes += write(ends[0], "x", 1);
    return (void *)bytes;
}

/* What one thread sends, another one reads, which begins when two messages have gone. */
static int moves(int type, const void *stream) {
    const int reads = stream ? BIG * 4 + SMALL : 4 + SMALL;
    pthread_t t;
    void *sent;
    long got = 0;
    need("socketpair", socketpair(AF_UNIX, type, 0, ends) == 0);
    pthread_create(&t, 0, sends, (void *)stream);
    sem_wait(&two_sent);
    for (int i = 0; i < reads && got < BIG * 4 + SMALL; i++) got += read(ends[1], room, BIG);
    pthread_join(t, &sent);
    close(ends[0]), close(ends[1]);
    return (long)sent == BIG * 4 + SMALL && got == (long)sent;
}

static void *fills(void *v) {
    const int from = socket(AF_UNIX, SOCK_DGRAM, 0);
    long n = 0;
    for (int i = 0; i < QUEUE; i++) n += sendto(from, "abc", 3, 0, (struct sockaddr *)&to, to_bytes) == 3;
    return (void *)n;
    (void)v;
}

int main(void) {
    pthread_t t;
    void *sent;
    int n = 0;
    sem_init(&two_sent, 0, 0);
    check("datagrams", moves(SOCK_DGRAM, NULL));
    check("packets", moves(SOCK_SEQPACKET, NULL));
    check("a stream", moves(SOCK_STREAM, ""));

    const int at = socket(AF_UNIX, SOCK_DGRAM, 0);
    to_bytes = offsetof(struct sockaddr_un, sun_path);
    need("bind", bind(at, (struct sockaddr *)&to, to_bytes) == 0); /* the kernel chooses a name */
    to_bytes = sizeof to;
    need("getsockname", getsockname(at, (struct sockaddr *)&to, &to_bytes) == 0);
    pthread_create(&t, 0, fills, 0);
    while (n < QUEUE) n += read(at, room, BIG) == 3;
    pthread_join(t, &sent);
    check("a queue that is full", (long)sent == QUEUE);
    return done();
}
