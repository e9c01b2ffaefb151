/* File calls that are rarely made: O_TMPFILE with linkat, fallocate and holes, copy_file_range, sendfile, statx, renameat2,
 * directory positions, extended attributes, times, locks of an open file. */
#include "guest.h"
#include <dirent.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <linux/fs.h>

int main(void) {
    int t = open(".", O_TMPFILE | O_RDWR, 0640);
    if (t >= 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", t);
        check("tmpfile", write(t, "nameless", 8) == 8 && linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW) == 0);
    } else {
        close(open("named", O_WRONLY | O_CREAT, 0640));
    }
    int a = open("a", O_RDWR | O_CREAT | O_TRUNC, 0600), b = open("b", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < 3000; i++) dprintf(a, "line %d\n", i);
    answer("fallocate", fallocate(b, 0, 0, 100000) == 0);
    answer("keep size", fallocate(b, FALLOC_FL_KEEP_SIZE, 200000, 4096) == 0);
    answer("hole", fallocate(a, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096) == 0);
    printf("data %ld hole %ld\n", (long)lseek(a, 0, SEEK_DATA), (long)lseek(a, 0, SEEK_HOLE));
    loff_t from = 10, to = 5;
    ssize_t n = copy_file_range(a, &from, b, &to, 10000, 0);
    printf("copied %zd from %ld to %ld\n", n, (long)from, (long)to);
    off_t off = 3;
    check("sendfile", lseek(b, 0, SEEK_END) >= 0 && sendfile(b, a, &off, 500) == 500 && off == 503);
    struct statx x;
    memset(&x, 0, sizeof x);
    check("statx", statx(AT_FDCWD, "a", 0, STATX_BASIC_STATS | STATX_BTIME, &x) == 0 && x.stx_size > 20000);
    check("statx empty", statx(a, "", AT_EMPTY_PATH, STATX_SIZE, &x) == 0 && x.stx_size > 20000);
    sink(&x, sizeof x);
    check("no replace", syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE) == -1 && errno == EEXIST);
    answer("exchange", syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE) == 0);
    answer("attribute", setxattr("a", "user.k", "value", 5, 0) == 0);
    char v[64] = "";
    ssize_t l = getxattr("a", "user.k", v, sizeof v);
    printf("%zd %s\n", l, v);
    l = listxattr("a", v, sizeof v);
    printf("%zd\n", l);
    check("size asked", getxattr("a", "user.k", 0, 0) == (l > 0 ? 5 : -1));
    struct timespec times[2] = {{1000, 5}, {2000, 7}};
    struct stat s;
    check("times", utimensat(AT_FDCWD, "a", times, 0) == 0 && stat("a", &s) == 0 && s.st_mtim.tv_sec == 2000 && s.st_atim.tv_nsec == 5);
    check("omit", utimensat(AT_FDCWD, "a", (struct timespec[]){{0, UTIME_OMIT}, {0, UTIME_NOW}}, 0) == 0 && stat("a", &s) == 0 && s.st_atim.tv_sec == 1000);
    need("dir", mkdir("dir", 0700) == 0);
    for (int i = 0; i < 60; i++) { char q[32]; snprintf(q, sizeof q, "dir/%d", i); close(open(q, O_CREAT | O_WRONLY, 0600)); }
    DIR *d = opendir("dir");
    long at = 0;
    struct dirent *e;
    for (int i = 0; i < 20 && (e = readdir(d)); i++) at = telldir(d);
    e = readdir(d);
    char name[256];
    snprintf(name, sizeof name, "%s", e->d_name);
    seekdir(d, at);
    check("same entry again", (e = readdir(d)) && !strcmp(e->d_name, name));
    int count = 0;
    for (rewinddir(d); readdir(d); count++) continue;
    printf("entries %d\n", count);
    struct flock k = {F_WRLCK, SEEK_SET, 0, 10, 0};
    check("open file lock", fcntl(a, F_OFD_SETLK, &k) == 0);
    int a2 = open("b", O_RDWR);
    k.l_pid = 0;
    check("held", fcntl(a2, F_OFD_SETLK, &k) == -1 && errno == EAGAIN && fcntl(a2, F_OFD_GETLK, &k) == 0 && k.l_type == F_WRLCK && k.l_pid == -1);
    check("flock", flock(a, LOCK_EX) == 0 && flock(a2, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
    struct statfs fs;
    check("statfs", fstatfs(a, &fs) == 0 && fs.f_bsize > 0);
    sink(&fs, sizeof fs);
    check("truncate", truncate("b", 7) == 0 && stat("b", &s) == 0 && s.st_size == 7);
    check("readahead", readahead(a, 0, 4096) == 0 && posix_fadvise(a, 0, 0, POSIX_FADV_DONTNEED) == 0);
    char buf[8] = "";
    check("negative seek", lseek(a, -1, SEEK_SET) == -1 && errno == EINVAL && pread(a, buf, 4, -1) == -1 && errno == EINVAL);
    return done();
}
