/* close_range: plain, close-on-exec, with a table of its own; and closing everything one by one, as daemons do. */
#include "guest.h"
#include <linux/close_range.h>

static int open_at(int fd) { return fcntl(fd, F_GETFD) >= 0; }

int main(void) {
    int low = open("/dev/null", O_RDWR);
    need("null", low >= 0);
    for (int i = 20; i < 30; i++) need("dup2", dup2(low, i) == i);
    check("cloexec", syscall(SYS_close_range, 20, 22, CLOSE_RANGE_CLOEXEC) == 0 && fcntl(21, F_GETFD) == FD_CLOEXEC);
    check("plain", syscall(SYS_close_range, 20, 24, 0) == 0 && !open_at(20) && !open_at(24) && open_at(25));
    check("own table", syscall(SYS_close_range, 25, 26, CLOSE_RANGE_UNSHARE) == 0 && !open_at(25) && open_at(27));
    check("opened afterwards", open("/dev/null", O_RDONLY) == low + 1 && open_at(low + 1));
    check("wrong order", syscall(SYS_close_range, 30, 20, 0) == -1 && errno == EINVAL);
    check("unknown flag", syscall(SYS_close_range, 30, 40, 1 << 10) == -1 && errno == EINVAL);
    check("to the end", syscall(SYS_close_range, 3, ~0u, 0) == 0 && !open_at(3) && !open_at(27));
    for (int i = 3; i < 1024; i++) close(i);
    int p[2];
    check("pipe", pipe(p) == 0 && p[0] == 3 && p[1] == 4 && write(p[1], "x", 1) == 1);
    char c = 0;
    check("read", read(p[0], &c, 1) == 1 && c == 'x');
    check("high", dup2(p[1], 900) == 900 && write(900, "y", 1) == 1 && read(p[0], &c, 1) == 1 && c == 'y');
    return done();
}
