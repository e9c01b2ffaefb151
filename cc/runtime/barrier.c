/*
 * --barrier: the checking barrier (Section 4.2 of the paper) beneath a program whose source stays untouched. What leaves the
 * process outside handlers waits until every thread that was inside a handler then has left it: a thread that a fault led
 * past a lock may have shown this one state that its own validation will find wrong.
 *
 * A thread that does not leave for a second is no longer waited for (barrier_wait.c: BARRIER_NS). Programs that can do something
 * else meanwhile ask sf_barrier themselves and are linked without this.
 *
 * Not covered: what handlers themselves send, once they are validated; and what hold.c does not cover.
 */
#define SF_WAIT sf_barrier_wait
#include "hold.c"

/* Asked for by the envelope, which makes its calls without the C library. */
SF_API void sf_leaves(void) { sf_barrier_wait(); }
