/* Descriptor numbers: lowest free, dup, dup2 onto an open one, dup3, F_DUPFD, close-on-exec, close_range. */
#include "guest.h"

int main(void) {
    int a = open("/dev/null", O_RDONLY), b = dup(a), c = fcntl(a, F_DUPFD, 50), d = fcntl(a, F_DUPFD_CLOEXEC, 60);
    printf("%d %d %d %d\n", a, b, c, d);
    close(a);
    printf("lowest free again: %d\n", open("/dev/zero", O_RDONLY));
    printf("dup2: %d\n", dup2(b, 51));
    printf("dup3: %d\n", dup3(b, 52, O_CLOEXEC));
    printf("dup3 same: %d %s\n", dup3(b, b, 0), strerror(errno));
    printf("flags: %d %d\n", fcntl(d, F_GETFD), fcntl(c, F_GETFD));
    printf("close twice: %d %d\n", close(51), close(51));
    printf("close_range: %ld\n", syscall(SYS_close_range, 50, 70, 0));
    printf("gone: %d\n", fcntl(60, F_GETFD));
    printf("high: %d\n", dup2(b, 900));
    return done();
}
