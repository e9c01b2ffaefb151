/* A system call number that no kernel has: bare, ENOSYS. */
#include "guest.h"

int main(void) {
    puts("before");
    fflush(stdout);
    check("ENOSYS", syscall(9999, 1, 2, 3) == -1 && errno == ENOSYS);
    return done();
}
