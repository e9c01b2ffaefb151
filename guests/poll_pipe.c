/* poll and select on pipes: nothing ready, readable, writable, hung up, a closed descriptor, a full pipe. */
#include "guest.h"
#include <poll.h>
#include <sys/select.h>

int main(void) {
    int p[2], q[2];
    char b[65536];
    need("pipes", pipe(p) == 0 && pipe(q) == 0);
    struct pollfd f[3] = {{p[0], POLLIN, 0}, {p[1], POLLOUT, 0}, {999, POLLIN, 0}};
    check("writable and bad", poll(f, 3, 0) == 2 && f[0].revents == 0 && f[1].revents == POLLOUT && f[2].revents == POLLNVAL);
    check("times out", poll(f, 1, 10) == 0);
    need("write", write(p[1], "x", 1) == 1);
    check("readable", poll(f, 1, -1) == 1 && f[0].revents == POLLIN);
    fd_set r, w;
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_SET(p[0], &r), FD_SET(q[0], &r), FD_SET(q[1], &w);
    struct timeval t = {1, 0};
    check("select", select(q[1] + 1, &r, &w, 0, &t) == 2 && FD_ISSET(p[0], &r) && !FD_ISSET(q[0], &r) && FD_ISSET(q[1], &w));
    fcntl(q[1], F_SETFL, O_NONBLOCK);
    long full = 0, n;
    memset(b, 1, sizeof b);
    while ((n = write(q[1], b, sizeof b)) > 0) full += n;
    check("full says EAGAIN", errno == EAGAIN && full >= 4096);
    f[1].fd = q[1];
    check("not writable", poll(f + 1, 1, 0) == 0);
    check("capacity", fcntl(q[1], F_SETPIPE_SZ, 1 << 18) == 1 << 18 && poll(f + 1, 1, 0) == 1);
    close(p[1]);
    check("hung up", poll(f, 1, 0) == 1 && f[0].revents == (POLLIN | POLLHUP));
    check("then the end", read(p[0], b, 10) == 1 && read(p[0], b, 10) == 0);
    return done();
}
