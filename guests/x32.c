/* A call number with the x32 bit: ENOSYS where the kernel has no x32, as Debian's. */
#include "guest.h"

int main(void) {
    puts("before");
    fflush(stdout);
    check("ENOSYS", syscall(0x40000000 | SYS_getppid) == -1 && errno == ENOSYS);
    return done();
}
