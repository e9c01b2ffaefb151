/* SA_RESTART against EINTR: a read on a pipe goes on or fails; nanosleep never goes on and says what was left. */
#include "guest.h"
#include <sys/time.h>

static int p[2];
static volatile sig_atomic_t n, feed;
static void on(int s) { (void)s; n++; if (feed) { ssize_t w = write(p[1], "f", 1); (void)w; } }
static void arm(int us) { setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, us}}, 0); }

int main(void) {
    char c;
    need("pipe", pipe(p) == 0);
    struct sigaction a = {.sa_handler = on};
    sigaction(SIGALRM, &a, 0);
    arm(20000);
    check("read fails", read(p[0], &c, 1) == -1 && errno == EINTR && n == 1);
    struct timespec t = {5, 0}, left;
    arm(20000);
    check("nanosleep fails", nanosleep(&t, &left) == -1 && errno == EINTR && left.tv_sec == 4);
    a.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &a, 0);
    feed = 1;
    arm(20000);
    check("read goes on", read(p[0], &c, 1) == 1 && c == 'f' && n == 3);
    feed = 0;
    arm(20000);
    check("nanosleep still fails", nanosleep(&t, &left) == -1 && errno == EINTR);
    return done();
}
