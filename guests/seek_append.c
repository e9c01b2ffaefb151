/* File offsets: holes, SEEK_DATA and SEEK_HOLE, truncation, O_APPEND against an explicit seek, fallocate. */
#include "guest.h"

int main(void) {
    char b[64] = {0};
    int fd = open("seek", O_RDWR | O_CREAT | O_TRUNC, 0644);
    check("seek past the end", lseek(fd, 1 << 20, SEEK_SET) == 1 << 20);
    check("write there", write(fd, "end", 3) == 3);
    check("hole reads as zeros", pread(fd, b, 4, 100) == 4 && !memcmp(b, "\0\0\0\0", 4));
    check("data is found", lseek(fd, 0, SEEK_DATA) > 0);
    check("hole is found", lseek(fd, 0, SEEK_HOLE) == 0);
    check("truncate", ftruncate(fd, 10) == 0 && lseek(fd, 0, SEEK_END) == 10);
    int ap = open("seek", O_WRONLY | O_APPEND);
    lseek(ap, 0, SEEK_SET);
    check("append ignores the seek", write(ap, "tail", 4) == 4 && lseek(ap, 0, SEEK_CUR) == 14);
    check("fallocate", posix_fallocate(fd, 0, 5000) == 0);
    struct stat s;
    fstat(fd, &s);
    printf("size %lld\n", (long long)s.st_size);
    check("negative seek", lseek(fd, -1, SEEK_SET) == -1 && errno == EINVAL);
    return done();
}
