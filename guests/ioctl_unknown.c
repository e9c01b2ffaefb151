/* An ioctl that no table knows, with a pointer whose extent only its driver knows. */
#include "guest.h"
#include <sys/ioctl.h>

int main(void) {
    char b[256];
    puts("before");
    fflush(stdout);
    check("ENOTTY", ioctl(open("/dev/null", O_RDWR), _IOWR(0xe7, 0x99, b), b) == -1 && errno == ENOTTY);
    return done();
}
