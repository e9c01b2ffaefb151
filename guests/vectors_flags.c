/* preadv2 and pwritev2 with flags and offsets, readv over holes, zero-length vectors, vectors that are too many. */
#include "guest.h"
#include <sys/uio.h>

int main(void) {
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    char a[8] = "", b[8] = "", c[8] = "";
    struct iovec w[3] = {{"one", 3}, {0, 0}, {"twothree", 8}}, r[3] = {{a, 4}, {b, 0}, {c, 8}};
    check("pwritev2", pwritev2(fd, w, 3, 5, 0) == 11);
    check("at the position", pwritev2(fd, w, 1, -1, 0) == 3 && lseek(fd, 0, SEEK_CUR) == 3);
    check("append", pwritev2(fd, w + 2, 1, 0, RWF_APPEND) == 8 && lseek(fd, 0, SEEK_END) == 24);
    check("dsync", pwritev2(fd, w, 1, 30, RWF_DSYNC) == 3);
    check("unknown flag", pwritev2(fd, w, 1, 0, 1 << 20) == -1 && errno == EOPNOTSUPP);
    check("preadv2", preadv2(fd, r, 3, 4, 0) == 12 && a[0] == 0 && !memcmp(a + 1, "one", 3));
    printf("%.8s\n", c);
    ssize_t n = preadv2(fd, r, 3, 24, RWF_NOWAIT);
    check("nowait", n == 9 || (n == -1 && (errno == EAGAIN || errno == EOPNOTSUPP)));
    check("position kept", lseek(fd, 1, SEEK_SET) == 1 && preadv2(fd, r, 1, -1, 0) == 4 && lseek(fd, 0, SEEK_CUR) == 5);
    check("beyond the end", preadv(fd, r, 3, 1000) == 0);
    static struct iovec many[1025];
    check("too many", readv(fd, many, 1025) == -1 && errno == EINVAL);
    check("1024 empty", readv(fd, many, 1024) == 0);
    check("negative", preadv(fd, r, 1, -5) == -1 && errno == EINVAL);
    many[0].iov_base = a, many[0].iov_len = (size_t)-1;
    check("length negative", readv(fd, many, 1) == -1 && errno == EINVAL);
    struct iovec hole[2] = {{a, 2}, {(void *)8, 8}};
    lseek(fd, 0, SEEK_SET);
    check("half into nowhere", readv(fd, hole, 2) == 2);
    return done();
}
