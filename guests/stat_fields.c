/* stat and its relatives agree with each other; times are in order, padding is written where replicas compare it. */
#include "guest.h"
#include <sys/statvfs.h>

int main(void) {
    struct stat a, b;
    struct statx x;
    memset(&a, 0xaa, sizeof a);
    memset(&x, 0xaa, sizeof x);
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0640);
    need("write", write(fd, "12345", 5) == 5);
    check("fstat and stat", !fstat(fd, &a) && !stat("f", &b) && a.st_ino == b.st_ino && a.st_size == 5);
    check("statx", !statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &x) && x.stx_ino == a.st_ino && x.stx_size == 5);
    sink(&a, sizeof a);
    sink(&x, sizeof x);
    struct timespec t[2] = {{1000000, 5}, {2000000, 7}};
    check("utimensat", !futimens(fd, t) && !stat("f", &b) && b.st_mtim.tv_sec == 2000000 && b.st_mtim.tv_nsec == 7);
    check("ctime later", b.st_ctim.tv_sec >= a.st_ctim.tv_sec);
    struct statvfs v;
    check("statvfs", !statvfs(".", &v) && v.f_bsize > 0 && v.f_blocks >= v.f_bfree);
    check("access", access("f", R_OK | W_OK) == 0 && access("f/g", F_OK) == -1 && errno == ENOTDIR);
    return done();
}
