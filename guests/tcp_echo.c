/* TCP over loopback within one process: listen, non-blocking connect, accept, a 1 MiB echo, options, half close. */
#include "guest.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

enum { BYTES = 1 << 20 };
static char out[BYTES], in[BYTES];

int main(void) {
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, peer;
    socklen_t n = sizeof a;
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    need("listen", bind(l, (void *)&a, n) == 0 && listen(l, 5) == 0 && getsockname(l, (void *)&a, &n) == 0);
    sink(&a, sizeof a); /* the port is the kernel's choice */
    int rc = connect(c, (void *)&a, n);
    check("connecting", rc == 0 || errno == EINPROGRESS);
    int s = accept4(l, (void *)&peer, &n, SOCK_NONBLOCK);
    check("accepted", s >= 0 && peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    struct sockaddr_in self;
    check("names match", getsockname(c, (void *)&self, &n) == 0 && self.sin_port == peer.sin_port);
    check("nodelay", setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    for (int i = 0; i < BYTES; i++) out[i] = i * 7 + (i >> 9);
    size_t sent = 0, echoed_in = 0, echoed = 0, back = 0;
    static char mid[BYTES];
    while (back < BYTES) {
        struct pollfd f[2] = {{c, POLLIN | (sent < BYTES ? POLLOUT : 0), 0}, {s, POLLIN | (echoed < echoed_in ? POLLOUT : 0), 0}};
        poll(f, 2, -1);
        ssize_t k;
        if ((f[0].revents & POLLOUT) && (k = send(c, out + sent, BYTES - sent, 0)) > 0) sent += k;
        if ((f[1].revents & POLLIN) && (k = recv(s, mid + echoed_in, BYTES - echoed_in, 0)) > 0) echoed_in += k;
        if ((f[1].revents & POLLOUT) && (k = send(s, mid + echoed, echoed_in - echoed, 0)) > 0) echoed += k;
        if ((f[0].revents & POLLIN) && (k = recv(c, in + back, BYTES - back, 0)) > 0) back += k;
    }
    check("echo", !memcmp(in, out, BYTES));
    shutdown(c, SHUT_WR);
    struct pollfd f = {s, POLLIN, 0};
    poll(&f, 1, -1);
    check("half close", recv(s, mid, 1, 0) == 0);
    close(l);
    int r = socket(AF_INET, SOCK_STREAM, 0);
    check("refused", connect(r, (void *)&a, sizeof a) == -1 && errno == ECONNREFUSED);
    return done();
}
