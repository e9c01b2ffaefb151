/* Started with standard input closed: reads fail, and the first file opened becomes descriptor 0. */
#include "guest.h"

int main(void) {
    char c;
    check("read says EBADF", read(0, &c, 1) == -1 && errno == EBADF);
    check("open returns 0", open("/dev/null", O_RDONLY) == 0);
    check("getchar sees the end", getchar() == EOF);
    return done();
}
