/* A pseudo terminal within one process: name, echo, canonical lines, raw mode, window size, the ioctls that go with it. */
#include "guest.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

int main(void) {
    int m = posix_openpt(O_RDWR | O_NOCTTY);
    need("ptmx", m >= 0 && grantpt(m) == 0 && unlockpt(m) == 0);
    char b[256] = {0}, *name = ptsname(m);
    sink(name, strlen(name));
    int s = open(name, O_RDWR | O_NOCTTY);
    check("terminal", isatty(s) && isatty(m) && !isatty(0) + 1);
    check("line", write(m, "typed\n", 6) == 6 && read(s, b, sizeof b) == 6 && !memcmp(b, "typed\n", 6));
    check("echo", read(m, b, sizeof b) == 7 && !memcmp(b, "typed\r\n", 7));
    struct termios t;
    tcgetattr(s, &t);
    cfmakeraw(&t);
    check("raw", tcsetattr(s, TCSANOW, &t) == 0 && write(m, "x", 1) == 1 && read(s, b, 1) == 1);
    struct winsize w = {24, 80, 0, 0}, g;
    check("size", ioctl(m, TIOCSWINSZ, &w) == 0 && ioctl(s, TIOCGWINSZ, &g) == 0 && g.ws_col == 80);
    int n = 0;
    struct pollfd f = {s, POLLIN, 0}; /* the kernel carries bytes from end to end in its own time */
    need("write", write(m, "abc", 3) == 3 && poll(&f, 1, 1000) == 1);
    check("bytes waiting", ioctl(s, FIONREAD, &n) == 0 && n == 3);
    return done();
}
