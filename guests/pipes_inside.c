/* splice, tee and vmsplice between pipes and files; sizes of pipes; FIONREAD; packets. */
#include "guest.h"
#include <sys/ioctl.h>
#include <sys/uio.h>

int main(void) {
    int p[2], q[2], r[2], n = 0;
    need("pipes", pipe(p) == 0 && pipe(q) == 0 && pipe2(r, O_DIRECT | O_NONBLOCK) == 0);
    check("tee", write(p[1], "hello world", 11) == 11 && tee(p[0], q[1], 5, 0) == 5);
    check("waiting", ioctl(p[0], FIONREAD, &n) == 0 && n == 11);
    char b[64] = "";
    check("copy", read(q[0], b, sizeof b) == 5 && !memcmp(b, "hello", 5));
    int f = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
    loff_t off = 3;
    check("splice to a file", splice(p[0], 0, f, &off, 11, 0) == 11 && off == 14);
    off = 4;
    check("splice from a file", splice(f, &off, q[1], 0, 100, 0) == 10 && off == 14 && read(q[0], b, sizeof b) == 10 && b[0] == 'e');
    check("packets", write(r[1], "ab", 2) == 2 && write(r[1], "cd", 2) == 2 && read(r[0], b, sizeof b) == 2 && read(r[0], b, 1) == 1 && read(r[0], b, 1) == -1 && errno == EAGAIN);
    printf("size %d now %d\n", fcntl(p[0], F_GETPIPE_SZ), fcntl(p[0], F_SETPIPE_SZ, 8192));
    int on = 1;
    check("nonblocking", ioctl(p[0], FIONBIO, &on) == 0 && read(p[0], b, 1) == -1 && errno == EAGAIN);
    close(q[0]);
    signal(SIGPIPE, SIG_IGN);
    check("nobody reads", write(q[1], "x", 1) == -1 && errno == EPIPE);
    check("not a pipe", tee(f, p[1], 1, 0) == -1 && errno == EINVAL);
    return done();
}
