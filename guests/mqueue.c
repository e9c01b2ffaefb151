/* A POSIX message queue: priorities, a full queue, a timed wait. */
#include "guest.h"
#include <mqueue.h>

int main(void) {
    struct mq_attr a = {.mq_maxmsg = 2, .mq_msgsize = 16};
    char name[32], b[16];
    unsigned prio;
    snprintf(name, sizeof name, "/guest-%d", getpid());
    mqd_t q = mq_open(name, O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK, 0600, &a);
    need("mq_open", q >= 0);
    mq_unlink(name);
    check("two", mq_send(q, "low", 3, 1) == 0 && mq_send(q, "high", 4, 9) == 0);
    check("full", mq_send(q, "x", 1, 1) == -1 && errno == EAGAIN);
    check("highest first", mq_receive(q, b, 16, &prio) == 4 && prio == 9);
    check("attributes", mq_getattr(q, &a) == 0 && a.mq_curmsgs == 1);
    return done();
}
