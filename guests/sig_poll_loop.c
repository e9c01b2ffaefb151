/* A handler sets a flag that a loop of cheap system calls looks at, twenty times over. */
#include "guest.h"
#include <sys/time.h>

static volatile sig_atomic_t n;
static void on(int s) { (void)s; n++; }

int main(void) {
    signal(SIGALRM, on);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 2000}, {0, 2000}}, 0);
    long calls = 0;
    while (n < 20) getppid(), calls++;
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, 0);
    sink(&calls, sizeof calls);
    check("twenty", n >= 20);
    return done();
}
