/* UDP over loopback within one process: sendto, recvfrom, sendmmsg and recvmmsg, a receive timeout, IPv6 where there is. */
#include "guest.h"
#include <arpa/inet.h>
#include <sys/socket.h>

int main(void) {
    int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, from;
    socklen_t n = sizeof to, m = sizeof from;
    char buf[100];
    need("bind", bind(a, (void *)&to, n) == 0 && getsockname(a, (void *)&to, &n) == 0);
    check("sent", sendto(b, "ping", 4, 0, (void *)&to, n) == 4);
    check("received", recvfrom(a, buf, sizeof buf, 0, (void *)&from, &m) == 4 && !memcmp(buf, "ping", 4));
    check("answered", sendto(a, "pong", 4, 0, (void *)&from, m) == 4 && recv(b, buf, sizeof buf, 0) == 4 && !memcmp(buf, "pong", 4));
    need("connect", connect(b, (void *)&to, n) == 0);
    struct iovec v[3] = {{"1", 1}, {"22", 2}, {"333", 3}}, r[3] = {{buf, 10}, {buf + 10, 10}, {buf + 20, 10}};
    struct mmsghdr s[3] = {{.msg_hdr = {.msg_iov = v, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = v + 1, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = v + 2, .msg_iovlen = 1}}};
    struct mmsghdr g[3] = {{.msg_hdr = {.msg_iov = r, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = r + 1, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = r + 2, .msg_iovlen = 1}}};
    check("three at once", sendmmsg(b, s, 3, 0) == 3 && s[2].msg_len == 3);
    check("three back", recvmmsg(a, g, 3, 0, 0) == 3 && g[1].msg_len == 2 && !memcmp(buf + 20, "333", 3));
    struct timeval t = {0, 10000};
    setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    check("times out", recv(a, buf, 1, 0) == -1 && errno == EAGAIN);
    check("truncated", send(b, "0123456789", 10, 0) == 10 && recv(a, buf, 4, MSG_TRUNC) == 10);
    return done();
}
