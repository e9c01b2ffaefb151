/* Buffers that end where nobody may read or write: what the kernel has moved before it came there has moved, and what it
 * left behind is seen. The first write of the file is struck by a fault test: its bytes are compared although not all of
 * them can be read. Its place is 5 bytes long, so that any patcher finds room. */
#include "guest.h"
#include <linux/capability.h>
#include <poll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/utsname.h>

static char *edge; /* behind it lies nothing */

static char *fresh(size_t before) {
    memset(edge - 4096, '.', 4096);
    return edge - before;
}

static void show(const char *what, long r, size_t before) {
    printf("%s: %ld %s\n", what, r, r < 0 ? strerrorname_np(errno) : "");
    sink(edge - before, before);
}

static inline __attribute__((always_inline)) void strike(char *at) {
    __asm__ volatile(".globl flip_here\n.type flip_here, @function\nflip_here: .byte 0x0f, 0x1f, 0x44, 0, 0" : : "a"(at) : "memory");
}

static void files(void) {
    char back[300] = "";
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *p = fresh(100);
    memset(p, 'x', 100);
    strike(p);
    long n = syscall(SYS_write, fd, p, 200);
    show("write", n, 100);
    struct iovec v[2] = {{"first", 5}, {p + 50, 200}};
    show("writev", syscall(SYS_writev, fd, v, 2), 100);
    ssize_t got = pread(fd, back, sizeof back, 0);
    printf("file: %zd %016lx\n", got, digest(back, sizeof back));
    need("fill", pwrite(fd, "0123456789", 10, 0) == 10 && ftruncate(fd, 200) == 0);
    p = fresh(50);
    show("pread", syscall(SYS_pread64, fd, p, 200, 0), 50);
    struct iovec w[2] = {{back, 7}, {p, 200}};
    show("preadv", syscall(SYS_preadv, fd, w, 2, 0, 0), 50);
    close(fd);
}

static void sockets(void) {
    int s[2], none = -1;
    struct sockaddr_storage name;
    char b[64] = "";
    need("socketpair", socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0);
    for (int i = 0; i < 6; i++) need("send", send(s[0], "0123456789abcdef0123456789abcdef", 32, 0) == 32);
    show("recvfrom nobody, no matter how long", syscall(SYS_recvfrom, s[1], b, 64, 0, 0, (void *)8), 0);
    show("recvfrom without a length", syscall(SYS_recvfrom, s[1], b, 8, 0, &name, 0), 0);
    printf("%.8s\n", b);
    show("recvfrom of a negative length", syscall(SYS_recvfrom, s[1], b + 8, 8, 0, &name, &none), 0);
    printf("%.16s\n", b);
    show("recvfrom to the edge", syscall(SYS_recvfrom, s[1], fresh(16), 32, 0, 0, 0), 16);
    struct iovec v[2] = {{b, 4}, {fresh(4), 28}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    show("recvmsg to the edge", syscall(SYS_recvmsg, s[1], &m, 0), 4);
    sink(b, sizeof b);
    struct mmsghdr out[2] = {{.msg_hdr = {.msg_iov = &(struct iovec){"whole", 5}, .msg_iovlen = 1}},
                             {.msg_hdr = {.msg_iov = &(struct iovec){fresh(3), 9}, .msg_iovlen = 1}}};
    show("sendmmsg of one and a half", syscall(SYS_sendmmsg, s[0], out, 2, 0), 3);
    close(s[0]), close(s[1]);
}

/* More than there is: the kernel looks at as many descriptors as it has room for, or refuses. */
static void counts(void) {
    struct timeval none = {0, 0};
    int p[2];
    need("pipe", pipe(p) == 0 && write(p[1], "x", 1) == 1);
    fd_set *set = (fd_set *)(edge - sizeof *set);
    memset(set, 0, sizeof *set);
    FD_SET(p[0], set);
    FD_SET(p[1], set);
    show("select of 65536", syscall(SYS_select, 65536, set, 0, 0, &none), sizeof *set);
    printf("to be read from: %d %d\n", FD_ISSET(p[0], set) != 0, FD_ISSET(p[1], set) != 0);
    show("poll of 2^30", syscall(SYS_poll, fresh(64), 1u << 30, 0), 64);
    show("mincore of 2^41", syscall(SYS_mincore, edge - 4096, 1ul << 41, fresh(64)), 64);
    close(p[0]), close(p[1]);
}

int main(void) {
    char *m = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need("edge", m != MAP_FAILED && munmap(m + 4096, 4096) == 0);
    edge = m + 4096;
    files();
    sockets();
    counts();
    show("stat", syscall(SYS_stat, "f", fresh(100)), 100);
    show("uname", syscall(SYS_uname, fresh(200)), 200);
    show("pipe", syscall(SYS_pipe2, fresh(4), 0), 4);
    show("getcwd", syscall(SYS_getcwd, fresh(2), 4096), 2);
    show("select", syscall(SYS_select, 1, edge - 8, edge, 0, 0), 8);
    struct pollfd f = {.fd = 1, .events = POLLIN, .revents = 77};
    show("ppoll without its limit", syscall(SYS_ppoll, &f, 1, (void *)8, 0, 8), 0);
    printf("revents %d\n", f.revents);
    struct __user_cap_header_struct h = {0, 0};
    struct __user_cap_data_struct d[2] = {{0}};
    show("capset of no known version", syscall(SYS_capset, &h, d), 0);
    printf("version %x\n", h.version);
    h = (struct __user_cap_header_struct){_LINUX_CAPABILITY_VERSION_1, 0};
    d[1].effective = 77;
    need("capget of the first version", syscall(SYS_capget, &h, d) == 0 && d[1].effective == 77);
    show("capget at the edge", syscall(SYS_capget, &h, fresh(12)), 12);
    show("capset at the edge", syscall(SYS_capset, &h, memcpy(fresh(12), d, 12)), 12);
    struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } a = {SIG_IGN, 0x10000400, 0, 0}, now;
    need("sigaction", syscall(SYS_rt_sigaction, SIGUSR1, &a, 0, 8) == 0 && syscall(SYS_rt_sigaction, SIGUSR1, 0, &now, 8) == 0);
    printf("flags %lx\n", now.flags);
    return done();
}
