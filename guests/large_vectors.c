/* More bytes at once than any log holds: a readv comes back short, as reads of more than the kernel's own limit do,
 * but right; messages with as much room bring what there is. */
#define _GNU_SOURCE
#include "guest.h"
#include <sys/socket.h>
#include <sys/uio.h>

static void messages(char *p, size_t n) {
    int s[2];
    need("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    struct iovec v[3] = {{p, n / 2}, {p + n / 2, n / 2}, {p, 1}};
    char control[64] = {0};
    struct mmsghdr m[3] = {0};
    for (int i = 0; i < 3; i++)
        m[i].msg_hdr = (struct msghdr){.msg_iov = v, .msg_iovlen = 3, .msg_control = control, .msg_controllen = sizeof control};
    need("sent", write(s[0], "payload", 7) == 7);
    check("recvmsg", recvmsg(s[1], &m[0].msg_hdr, 0) == 7 && !memcmp(p, "payload", 7));
    check("its control", m[0].msg_hdr.msg_controllen == 0 && m[0].msg_hdr.msg_flags == 0);
    check("its vector", m[0].msg_hdr.msg_iov == v && v[0].iov_len == n / 2 && m[0].msg_hdr.msg_iovlen == 3);
    need("sent", write(s[0], "again", 5) == 5);
    check("recvmmsg", recvmmsg(s[1], m, 3, MSG_DONTWAIT, 0) == 1 && m[0].msg_len == 5 && !memcmp(p, "again", 5));
}

int main(void) {
    size_t n = 160u << 20, done_n = 0;
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
    need("file", fd >= 0 && ftruncate(fd, n) == 0 && pwrite(fd, "end", 3, n - 3) == 3);
    char *p = mmap(0, 300u << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    while (done_n < n) {
        struct iovec v[2] = {{p + done_n, (n - done_n) / 2}, {p + done_n + (n - done_n) / 2, n - done_n - (n - done_n) / 2}};
        ssize_t r = readv(fd, v, 2);
        need("readv", r > 0);
        done_n += r;
    }
    check("all", !memcmp(p + n - 3, "end", 3));
    messages(p, 300u << 20);
    unlink("f");
    return done();
}
