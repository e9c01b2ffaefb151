/* setitimer: five ticks of real time into a handler while reads block on an empty pipe; then a virtual timer. */
#include "guest.h"
#include <sys/time.h>

static volatile sig_atomic_t n, v;
static void on(int s) { s == SIGALRM ? n++ : v++; }

int main(void) {
    struct sigaction a = {.sa_handler = on};
    sigaction(SIGALRM, &a, 0), sigaction(SIGVTALRM, &a, 0);
    int p[2], eintr = 0;
    char c;
    need("pipe", pipe(p) == 0);
    struct itimerval t = {{0, 10000}, {0, 10000}}, zero = {{0, 0}, {0, 0}}, left;
    setitimer(ITIMER_REAL, &t, 0);
    while (n < 5) eintr += read(p[0], &c, 1) == -1 && errno == EINTR;
    setitimer(ITIMER_REAL, &zero, &left);
    check("ticks interrupted the read", eintr >= 1);
    check("interval was kept", left.it_interval.tv_usec == 10000);
    setitimer(ITIMER_VIRTUAL, &t, 0);
    while (v < 2) getppid(); /* burns processor time with events in it */
    setitimer(ITIMER_VIRTUAL, &zero, 0);
    check("virtual", v >= 2);
    return done();
}
