/* eventfd as counter and as semaphore; timerfd that fires, counts missed expirations, and is read without blocking. */
#include "guest.h"
#include <sys/eventfd.h>
#include <sys/timerfd.h>

int main(void) {
    int e = eventfd(3, EFD_NONBLOCK), s = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK), t = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    uint64_t v = 4;
    check("adds up", write(e, &v, 8) == 8 && read(e, &v, 8) == 8 && v == 7);
    check("empty", read(e, &v, 8) == -1 && errno == EAGAIN);
    check("semaphore", read(s, &v, 8) == 8 && v == 1 && read(s, &v, 8) == 8 && read(s, &v, 8) == -1);
    struct itimerspec i = {{0, 5000000}, {0, 5000000}}, g;
    check("armed", timerfd_settime(t, 0, &i, 0) == 0 && timerfd_gettime(t, &g) == 0 && g.it_interval.tv_nsec == 5000000);
    usleep(30000);
    check("several expirations", read(t, &v, 8) == 8 && v >= 5);
    sink(&v, 8);
    fcntl(t, F_SETFL, 0);
    check("blocks for the next", read(t, &v, 8) == 8 && v >= 1);
    return done();
}
