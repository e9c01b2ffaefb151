/* alarm: pause is interrupted by it, a second alarm replaces the first and says what was left, 0 cancels. */
#include "guest.h"

static volatile sig_atomic_t n;
static void on(int s) { (void)s; n++; }

int main(void) {
    signal(SIGALRM, on);
    alarm(100);
    check("left", alarm(1) == 100);
    check("pause says EINTR", pause() == -1 && errno == EINTR && n == 1);
    alarm(50);
    check("cancelled", alarm(0) == 50 && alarm(0) == 0);
    return done();
}
