/* Two processes that take from one descriptor that blocks: one gets what has come, and the other's threads go on meanwhile.
 *
 * The first process gives, one at a time: it waits until somebody has taken the last one. If a taker of its own, who came too
 * late, kept its other thread from going on, nobody would give any more. */
#define _GNU_SOURCE
#include "guest.h"
#include <netinet/in.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>

#define ROUNDS 300
#define LAST '.'

static const char *how;
static int takes_from, gives_to, taken[2];
static struct sockaddr_un name = {.sun_family = AF_UNIX};
static socklen_t name_bytes;

static int is(const char *what) { return strcmp(how, what) == 0; }

/* What has come, or 0. */
static char take(void) {
    char c = 0;
    uint64_t n = 0;
    struct iovec v[2] = {{&c, 0}, {&c, 1}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    if (is("accept")) {
        int fd = accept(takes_from, 0, 0);
        return fd >= 0 && read(fd, &c, 1) == 1 && close(fd) == 0 ? c : 0;
    }
    if (is("eventfd")) return read(takes_from, &n, 8) == 8 ? 'x' : 0;
    if (is("recv")) return recv(takes_from, &c, 1, 0) == 1 ? c : 0;
    if (is("recvmsg")) return recvmsg(takes_from, &m, 0) == 1 ? c : 0;
    if (is("readv")) return readv(takes_from, v, 2) == 1 ? c : 0;
    return read(takes_from, &c, 1) == 1 ? c : 0;
}

static int give(char c) {
    uint64_t one = 1;
    if (is("eventfd")) return write(gives_to, &one, 8) == 8;
    if (!is("accept")) return write(gives_to, &c, 1) == 1;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int r = connect(fd, (struct sockaddr *)&name, name_bytes) == 0 && write(fd, &c, 1) == 1;
    return close(fd) == 0 && r;
}

/* Whoever has taken says so; the bytes are the same whoever it is. */
static void *takes(void *v) {
    (void)v;
    for (char c; (c = take()) && c != LAST;)
        if (write(taken[1], &c, 1) != 1) break;
    return 0;
}

static void *gives(void *v) {
    long n = 0;
    char c;
    (void)v;
    while (n < ROUNDS && give('x') && read(taken[0], &c, 1) == 1 && c == 'x') n++;
    return (void *)n;
}

static void descriptors(void) {
    int ends[2] = {-1, -1};
    if (is("eventfd")) {
        ends[0] = ends[1] = eventfd(0, EFD_SEMAPHORE);
    } else if (is("accept")) {
        ends[0] = socket(AF_UNIX, SOCK_STREAM, 0);
        name_bytes = sizeof name.sun_family;
        need("bind", bind(ends[0], (struct sockaddr *)&name, name_bytes) == 0 && listen(ends[0], 8) == 0);
        name_bytes = sizeof name;
        need("name", getsockname(ends[0], (struct sockaddr *)&name, &name_bytes) == 0);
    } else {
        need("ends", (is("read") ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) == 0);
    }
    takes_from = ends[0];
    gives_to = ends[1];
    need("taken", takes_from >= 0 && pipe(taken) == 0);
}

/* Nobody waits for what is not there: errors, and bytes out of band. */
static void asks_at_once(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof to;
    char c;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    need("bind", bind(fd, (struct sockaddr *)&to, bytes) == 0 && getsockname(fd, (struct sockaddr *)&to, &bytes) == 0);
    check("no error, nor a message", recv(fd, &c, 1, MSG_ERRQUEUE) == -1 && errno == EAGAIN);
    need("send", sendto(fd, "x", 1, 0, (struct sockaddr *)&to, bytes) == 1);
    check("no error, but a message", recv(fd, &c, 1, MSG_ERRQUEUE) == -1 && errno == EAGAIN);
    check("the message", recv(fd, &c, 1, 0) == 1 && c == 'x');
    close(fd);
}

int main(int argc, char **argv) {
    pthread_t taker, giver;
    void *n;
    how = argc > 1 ? argv[1] : "read";
    descriptors();
    pid_t child = fork();
    need("fork", child >= 0);
    if (child == 0) {
        takes(0);
        _exit(0);
    }
    need("threads", pthread_create(&taker, 0, takes, 0) == 0 && pthread_create(&giver, 0, gives, 0) == 0);
    if (is("recv")) asks_at_once();
    pthread_join(giver, &n);
    printf("%s: %ld taken\n", how, (long)n);
    if (is("eventfd")) {
        kill(child, SIGKILL); /* a counter has no last one */
    } else {
        need("last", give(LAST) && give(LAST));
        pthread_join(taker, 0);
    }
    return waitpid(child, 0, 0) == child && n == (void *)ROUNDS ? done() : 1;
}
