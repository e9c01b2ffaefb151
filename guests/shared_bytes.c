/* Calls whose bytes lie in memory that processes share: pipes, sockets, files. And children of such a process that become
 * other programs. With an argument: a write that would wait in its middle, or a connection that another process may
 * take. */
#include "guest.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>

static void join(void) {
    int status;
    need("wait", wait(&status) > 0);
    need("child", status == 0);
}

/* A connection whose address is stored in memory that processes share. */
static int takes_connection(char *m, int flags) {
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int listener = socket(AF_UNIX, SOCK_STREAM | flags, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    need("listen", bind(listener, (void *)&at, sizeof at) == 0 && listen(listener, 5) == 0);
    *(socklen_t *)m = sizeof at;
    if (flags) check("nobody", accept(listener, (void *)(m + 64), (socklen_t *)m) == -1 && errno == EAGAIN);
    need("connect", connect(client, (void *)&at, sizeof at) == 0);
    need("ready", poll(&(struct pollfd){listener, POLLIN, 0}, 1, -1) == 1);
    need("accept", accept4(listener, (void *)(m + 64), (socklen_t *)m, SOCK_CLOEXEC) >= 0);
    return *(socklen_t *)m == sizeof at.sun_family && ((struct sockaddr_un *)(m + 64))->sun_family == AF_UNIX;
}

int main(int argc, char **argv) {
    int zero = open("/dev/zero", O_RDWR), p[2], q[2], s[2];
    need("zero", zero >= 0);
    char *m = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, zero, 0);
    need("setup", m != MAP_FAILED && pipe(p) == 0 && pipe(q) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    fflush(stdout);
    if (fork() == 0) {
        if (argc > 1 && !strcmp(argv[1], "accept")) _exit(0);
        if (argc > 1) {
            for (ssize_t n, all = 0; all < 1 << 18; all += n) need("read", (n = read(p[0], m + (1 << 19), 100000)) > 0);
            _exit(0);
        }
        strcpy(m + 4096, "from a child");
        need("write", write(p[1], m + 4096, 13) == 13);
        need("read", read(q[0], m + 8192, 6) == 6);
        struct iovec v[2] = {{m + 8192, 2}, {m + 4096, 4}};
        struct msghdr h = {.msg_iov = v, .msg_iovlen = 2};
        need("sendmsg", sendmsg(s[1], &h, 0) == 6);
        _exit(0);
    }
    if (argc > 1) {
        puts("before");
        fflush(stdout);
        if (!strcmp(argv[1], "accept")) return !takes_connection(m, 0);
        return write(p[1], m, 1 << 18) < 0;
    }
    need("read", read(p[0], m, 13) == 13);
    puts(m);
    need("write", write(q[1], m + 7, 6) == 6);
    need("recv", recv(s[0], m + 100, 6, 0) == 6);
    printf("%.6s\n", m + 100);
    join();
    need("flags", fcntl(p[0], F_SETFL, O_NONBLOCK) == 0);
    check("nothing there", read(p[0], m, 10) == -1 && errno == EAGAIN);
    check("nor here", recv(s[0], m, 10, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    check("accepted", takes_connection(m + 1024, SOCK_NONBLOCK));
    int fd = open("file", O_RDWR | O_CREAT, 0600);
    need("pwrite", pwrite(fd, m, 100000, 3) == 100000);
    need("pread", pread(fd, m + 200000, 50, 3) == 50);
    printf("%s\n", m + 200000);
    fflush(stdout);
    need("system", system("echo another program") == 0);
    if (fork() == 0) {
        execlp("echo", "echo", "one more", (char *)0);
        _exit(1);
    }
    join();
    /* One that fails to become another program goes on as it is. */
    if (fork() == 0) {
        execl("/nowhere", "nowhere", (char *)0);
        m[1] = 'F';
        _exit(0);
    }
    join();
    printf("%.4s\n", m);
    return done();
}
