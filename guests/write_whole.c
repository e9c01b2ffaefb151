/* One write to a pipe that nobody reads yet: it comes back when all of it has been taken. */
#include "guest.h"

static char bytes[1 << 20];

int main(void) {
    memset(bytes, 'x', sizeof bytes);
    return write(1, bytes, sizeof bytes) == sizeof bytes ? 0 : 1;
}
