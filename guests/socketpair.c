/* A pair of connected sockets: stream and packet, MSG_PEEK, shutdown, credentials, and a descriptor passed across. */
#include "guest.h"
#include <sys/socket.h>

int main(void) {
    int s[2], d[2], on = 1;
    char b[64] = {0}, ctl[128] __attribute__((aligned(8)));
    need("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, d) == 0);
    check("peek", send(s[0], "hello", 5, 0) == 5 && recv(s[1], b, 64, MSG_PEEK) == 5 && recv(s[1], b, 3, 0) == 3 && recv(s[1], b, 64, 0) == 2);
    check("packets keep bounds", send(d[0], "one", 3, 0) == 3 && send(d[0], "three", 5, 0) == 5 && recv(d[1], b, 64, 0) == 3 && recv(d[1], b, 2, MSG_TRUNC) == 5);
    int fd = open("passed", O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct iovec v = {"x", 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = CMSG_SPACE(sizeof fd)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    check("descriptor sent", sendmsg(s[0], &m, 0) == 1);
    v.iov_base = b, m.msg_controllen = sizeof ctl;
    check("and received", recvmsg(s[1], &m, 0) == 1 && (c = CMSG_FIRSTHDR(&m)) && c->cmsg_type == SCM_RIGHTS);
    int got;
    memcpy(&got, CMSG_DATA(c), sizeof got);
    check("it works", got != fd && write(got, "through", 7) == 7 && pread(fd, b, 7, 0) == 7);
    setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    need("send", send(s[0], "y", 1, 0) == 1);
    m.msg_controllen = sizeof ctl;
    struct ucred u = {0};
    check("credentials", recvmsg(s[1], &m, 0) == 1 && (c = CMSG_FIRSTHDR(&m)) && c->cmsg_type == SCM_CREDENTIALS);
    memcpy(&u, CMSG_DATA(c), sizeof u);
    check("are mine", u.pid == getpid() && u.uid == getuid());
    check("shutdown", shutdown(s[0], SHUT_WR) == 0 && recv(s[1], b, 1, 0) == 0 && send(s[0], "z", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
    return done();
}
