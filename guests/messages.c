/* sendmsg and recvmsg: descriptors and credentials as ancillary data, truncation, peeking, many messages at once. */
#include "guest.h"
#include <sys/socket.h>
#include <sys/un.h>

int main(void) {
    int s[2], on = 1;
    need("pair", socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0);
    need("passcred", setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    int fds[2] = {open("/dev/null", O_RDONLY), open("/proc/self/stat", O_RDONLY)};
    char control[CMSG_SPACE(sizeof fds)] = {0}, data[16] = "payload";
    struct iovec v = {data, 8};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(c), fds, sizeof fds);
    check("sent", sendmsg(s[0], &m, 0) == 8);
    char got[256], in[16] = "";
    struct iovec w = {in, 3};
    struct msghdr r = {.msg_iov = &w, .msg_iovlen = 1, .msg_control = got, .msg_controllen = sizeof got};
    check("peeked", recvmsg(s[1], &r, MSG_PEEK | MSG_TRUNC) == 8 && (r.msg_flags & MSG_TRUNC));
    for (c = CMSG_FIRSTHDR(&r); c; c = CMSG_NXTHDR(&r, c))
        if (c->cmsg_type == SCM_RIGHTS) {
            memcpy(fds, CMSG_DATA(c), sizeof fds), close(fds[0]), close(fds[1]);
            printf("peeked descriptors %d %d\n", fds[0], fds[1]);
        }
    w.iov_len = sizeof in, r.msg_controllen = sizeof got;
    check("received", recvmsg(s[1], &r, MSG_CMSG_CLOEXEC) == 8 && !strcmp(in, "payload"));
    for (c = CMSG_FIRSTHDR(&r); c; c = CMSG_NXTHDR(&r, c)) {
        if (c->cmsg_type == SCM_CREDENTIALS) {
            struct ucred u;
            memcpy(&u, CMSG_DATA(c), sizeof u);
            check("credentials", u.pid == getpid() && u.uid == getuid());
        } else if (c->cmsg_type == SCM_RIGHTS) {
            memcpy(fds, CMSG_DATA(c), sizeof fds);
            check("descriptors", fcntl(fds[0], F_GETFD) == FD_CLOEXEC && read(fds[0], in, 4) == 0 && read(fds[1], in, 4) == 4);
        }
    }
    r.msg_controllen = 4;
    check("no room", sendmsg(s[0], &m, 0) == 8 && recvmsg(s[1], &r, 0) == 8 && (r.msg_flags & MSG_CTRUNC));
    printf("control left %zu flags %x\n", (size_t)r.msg_controllen, r.msg_flags);
    struct mmsghdr out[3] = {0}, back[4] = {0};
    struct iovec ov[3] = {{"a", 1}, {"bb", 2}, {"ccc", 3}}, iv[4];
    char bufs[4][8] = {0};
    for (int i = 0; i < 3; i++) out[i].msg_hdr.msg_iov = ov + i, out[i].msg_hdr.msg_iovlen = 1;
    for (int i = 0; i < 4; i++) iv[i] = (struct iovec){bufs[i], 8}, back[i].msg_hdr.msg_iov = iv + i, back[i].msg_hdr.msg_iovlen = 1;
    check("sendmmsg", sendmmsg(s[0], out, 3, 0) == 3 && out[2].msg_len == 3);
    struct timespec t = {1, 0};
    check("recvmmsg", recvmmsg(s[1], back, 4, MSG_DONTWAIT, &t) == 3 && back[1].msg_len == 2 && !strcmp(bufs[2], "ccc"));
    check("nothing more", recvmmsg(s[1], back, 4, MSG_DONTWAIT, 0) == -1 && errno == EAGAIN);
    check("too long a name", sendto(s[0], "x", 1, 0, (void *)control, 200) == -1);
    printf("%s\n", strerror(errno));
    check("out of band", send(s[0], "x", 1, MSG_OOB) == -1);
    printf("%s\n", strerror(errno));
    return done();
}
