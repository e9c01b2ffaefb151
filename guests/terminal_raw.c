/* As an editor does: the terminal gives every key at once and shows none. Then, with "refused", a command of ioctl that no
 * kernel has; else the program puts nothing back, and ends. */
#include "guest.h"
#include <sys/ioctl.h>
#include <termios.h>

int main(int argc, char **argv) {
    struct termios t;
    need("modes", tcgetattr(0, &t) == 0);
    cfmakeraw(&t);
    need("raw", tcsetattr(0, TCSANOW, &t) == 0);
    if (argc > 1 && !strcmp(argv[1], "refused")) ioctl(0, 0x5fe1);
    return 0;
}
