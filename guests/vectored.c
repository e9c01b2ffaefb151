/* Vectored and positioned transfers: readv, writev, pread, pwrite, preadv2, and an iovec of zero length. */
#include "guest.h"
#include <sys/uio.h>

int main(void) {
    int fd = open("vectored", O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct iovec w[4] = {{"alpha ", 6}, {0, 0}, {"beta ", 5}, {"gamma", 5}};
    check("writev", writev(fd, w, 4) == 16);
    check("pwrite", pwrite(fd, "BETA", 4, 6) == 4);
    volatile int n = 1;
    char a[7] = {0}, b[11] = {0}, c[6] = {0};
    struct iovec r[2] = {{a, 6}, {b, 10}};
    check("preadv", preadv(fd, r, 2, 0) == 16);
    check("pread", pread(fd, c, 5, 11) == 5);
    printf("%s|%s|%s\n", a, b, c);
    check("offset untouched", lseek(fd, 0, SEEK_CUR) == 16);
    check("bad pointer", writev(fd, (struct iovec[]){{(void *)1, 5}}, 1) == -1 && errno == EFAULT);
    int bad = -n;
    check("bad count", writev(fd, w, bad) == -1 && errno == EINVAL);
    fflush(stdout);
    struct iovec o[2] = {{"straight ", 9}, {"to stdout\n", 10}};
    check("to stdout", writev(1, o, 2) == 19);
    return done();
}
