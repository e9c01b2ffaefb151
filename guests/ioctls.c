/* Common ioctls on ordinary descriptors: FIONREAD, FIONBIO, FIOCLEX, terminal queries that say ENOTTY. */
#include "guest.h"
#include <sys/ioctl.h>
#include <termios.h>

int main(void) {
    int p[2], n = -1, on = 1;
    char c;
    need("pipe", pipe(p) == 0 && write(p[1], "12345", 5) == 5);
    check("FIONREAD", ioctl(p[0], FIONREAD, &n) == 0 && n == 5);
    check("FIONBIO", ioctl(p[0], FIONBIO, &on) == 0 && read(p[0], &n, 4) == 4 && read(p[0], &c, 1) == 1 && read(p[0], &c, 1) == -1 && errno == EAGAIN);
    check("FIOCLEX", ioctl(p[0], FIOCLEX) == 0 && fcntl(p[0], F_GETFD) == FD_CLOEXEC);
    struct winsize w;
    struct termios t;
    check("TIOCGWINSZ", ioctl(p[0], TIOCGWINSZ, &w) == -1 && errno == ENOTTY);
    check("tcgetattr", tcgetattr(p[0], &t) == -1 && errno == ENOTTY);
    check("isatty", !isatty(p[0]));
    return done();
}
