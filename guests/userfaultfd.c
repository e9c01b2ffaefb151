/* userfaultfd by the program itself. */
#include "guest.h"

int main(void) {
    puts("before");
    fflush(stdout);
    answer("made", syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1) >= 0);
    return done();
}
