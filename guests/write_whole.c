/* One call that moves many bytes to, or from, somebody who takes his time: it comes back when all of them have been moved.
 * `write`, `writev` and `sendmsg` of x's, and `recv` of as many as there are to come, which then are written. */
#include "guest.h"
#include <sys/socket.h>
#include <sys/uio.h>

static char bytes[1 << 20];

static ssize_t sent(const char *how) {
    struct iovec v[3] = {{bytes, 5000}, {bytes + 5000, 500000}, {bytes + 505000, sizeof bytes - 505000}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 3};
    if (!strcmp(how, "writev")) return writev(1, v, 3);
    if (!strcmp(how, "sendmsg")) return sendmsg(1, &m, 0);
    return write(1, bytes, sizeof bytes);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "write";
    if (!strcmp(how, "recv")) {
        puts("ready"), fflush(stdout);
        if (recv(0, bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes) return 1;
        return write(1, bytes, sizeof bytes) == sizeof bytes ? 0 : 2;
    }
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = 'a' + i % 23;
    return sent(how) == sizeof bytes ? 0 : 1;
}
