/* System call numbers below 0: no kernel has such a call, or will have. Debuggers and tests mark places by them. */
#include "guest.h"

int main(void) {
    check("-1", syscall(-1, 1, 2, 3) == -1 && errno == ENOSYS);
    check("-10", syscall(-10) == -1 && errno == ENOSYS);
    check("the lowest", syscall(0x80000100L) == -1 && errno == ENOSYS);
    return done();
}
