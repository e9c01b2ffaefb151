/* One call that moves many bytes to, or from, somebody who takes his time: it comes back when all of them have been moved.
 * `write`, `writev`, `pwritev2` and `sendmsg`, and `recv` or `recvmsg` of as many as there are to come, which then are written.
 * `threads` is a write behind others by which threads have handed bytes to each other. */
#include "guest.h"
#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>

static char bytes[1 << 20];

static ssize_t sent(const char *how) {
    struct iovec v[3] = {{bytes, 5000}, {bytes + 5000, 500000}, {bytes + 505000, sizeof bytes - 505000}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 3};
    if (!strcmp(how, "writev")) return writev(1, v, 3);
    if (!strcmp(how, "pwritev2")) return pwritev2(1, v, 3, -1, 0);
    if (!strcmp(how, "sendmsg")) return sendmsg(1, &m, 0);
    return write(1, bytes, sizeof bytes);
}

static ssize_t received(const char *how) {
    static char control[64];
    struct iovec v[3] = {{bytes, 500}, {bytes + 500, 700000}, {bytes + 700500, sizeof bytes - 700500}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 3, .msg_control = control, .msg_controllen = sizeof control, .msg_flags = -1};
    if (!strcmp(how, "recv")) return recv(0, bytes, sizeof bytes, MSG_WAITALL);
    ssize_t n = recvmsg(0, &m, MSG_WAITALL);
    return m.msg_controllen || m.msg_flags || m.msg_namelen ? -1 : n;
}

static void *takes(void *socket) {
    static char part[1 << 16];
    while (read(*(int *)socket, part, sizeof part) > 0) {}
    return 0;
}

static void between_threads(void) {
    int ends[2];
    pthread_t thread;
    need("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    need("pthread_create", pthread_create(&thread, 0, takes, &ends[0]) == 0);
    for (int i = 0; i < 4; i++) need("write", write(ends[1], bytes, 100000) == 100000);
    close(ends[1]);
    pthread_join(thread, 0);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "write";
    if (!strncmp(how, "recv", 4)) {
        puts("ready"), fflush(stdout);
        if (received(how) != sizeof bytes) return 1;
        return write(1, bytes, sizeof bytes) == sizeof bytes ? 0 : 2;
    }
    if (!strcmp(how, "threads")) between_threads();
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = 'a' + i % 23;
    return sent(how) == sizeof bytes ? 0 : 1;
}
