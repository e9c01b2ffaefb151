/* Vectors and messages go to blocking pipes and sockets that another thread empties late. */
#define _GNU_SOURCE
#include "guest.h"
#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#define PARTS 9
#define PART 77777u
#define MESSAGES 40

static unsigned char out[PARTS][PART];
static unsigned long sum_out;
static struct {
    int fd;
    unsigned long sum, bytes, most;
} from;

static void *takes(void *v) {
    static unsigned char part[50000];
    long n;
    (void)v;
    usleep(20000);
    while ((n = read(from.fd, part, sizeof part)) > 0) {
        for (long i = 0; i < n; i++) from.sum = from.sum * 31 + part[i];
        if ((from.bytes += (unsigned long)n) >= from.most) break;
    }
    return 0;
}

static pthread_t late(int fd, unsigned long most) {
    pthread_t thread;
    from.fd = fd;
    from.sum = from.bytes = 0;
    from.most = most;
    need("pthread_create", pthread_create(&thread, 0, takes, 0) == 0);
    return thread;
}

static void vector(const char *what, int ends[2], int as_message) {
    struct iovec parts[PARTS + 1] = {{0}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = PARTS + 1};
    char name[80];
    for (int i = 0; i < PARTS; i++) parts[i + (i > 3)] = (struct iovec){out[i], PART}; /* one is empty */
    pthread_t thread = late(ends[0], ~0ul);
    long n = as_message ? sendmsg(ends[1], &message, 0) : writev(ends[1], parts, PARTS + 1);
    snprintf(name, sizeof name, "%s: all in one call", what);
    check(name, n == (long)PARTS * PART);
    close(ends[1]);
    pthread_join(thread, 0);
    snprintf(name, sizeof name, "%s: all of it has come", what);
    check(name, from.bytes == (unsigned long)PARTS * PART && from.sum == sum_out);
    close(ends[0]);
}

/* To a socket that this one is not connected to, and whose queue is short. */
static void messages(int many) {
    struct sockaddr_un here = {AF_UNIX, "\0threads_vectors"};
    int to = socket(AF_UNIX, SOCK_DGRAM, 0), by = socket(AF_UNIX, SOCK_DGRAM, 0), sent = 0;
    struct mmsghdr all[MESSAGES] = {{{0}, 0}};
    struct iovec one = {out[1], 1000};
    need("bind", bind(to, (struct sockaddr *)&here, sizeof here) == 0);
    pthread_t thread = late(to, MESSAGES * 1000);
    for (int i = 0; i < MESSAGES; i++) all[i].msg_hdr = (struct msghdr){.msg_name = &here, .msg_namelen = sizeof here, .msg_iov = &one, .msg_iovlen = 1};
    while (sent < MESSAGES) {
        int n = many ? sendmmsg(by, all + sent, (unsigned)(MESSAGES - sent), 0)
                     : sendto(by, out[1], 1000, 0, (struct sockaddr *)&here, sizeof here) == 1000;
        if (n <= 0) break;
        sent += n;
    }
    pthread_join(thread, 0);
    check(many ? "many messages by one call" : "messages one by one", sent == MESSAGES && from.bytes == MESSAGES * 1000);
    close(to), close(by);
}

int main(void) {
    int ends[2];
    for (unsigned i = 0; i < sizeof out; i++) {
        out[i / PART][i % PART] = (unsigned char)(i * 7 + i / 256 * 13);
        sum_out = sum_out * 31 + out[i / PART][i % PART];
    }
    need("pipe", pipe(ends) == 0);
    vector("pipe", ends, 0);
    need("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    vector("stream", ends, 0);
    need("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    vector("message to a stream", ends, 1);
    messages(0);
    messages(1);
    struct iovec wrong[2] = {{out[0], 10}, {out[0], (size_t)-1}};
    need("pipe", pipe(ends) == 0);
    check("a length below zero", writev(ends[1], wrong, 2) < 0 && errno == EINVAL);
    return done();
}
