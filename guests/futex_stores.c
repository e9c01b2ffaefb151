/* futex operations in which the kernel stores a word of the program: PI locks and WAKE_OP. The words go on to the next
 * event, so a replica that missed a store would be seen there. */
#include "guest.h"
#include <linux/futex.h>

static long futex(uint32_t *w, int op, uint32_t v, const void *t, uint32_t *w2, uint32_t v3) {
    return syscall(SYS_futex, w, op, v, t, w2, v3);
}

int main(void) {
    static uint32_t w[4];
    check("lock_pi", futex(w, FUTEX_LOCK_PI_PRIVATE, 0, 0, 0, 0) == 0 && (w[0] & FUTEX_TID_MASK) == (uint32_t)syscall(SYS_gettid));
    sink(w, sizeof w);
    check("again is a deadlock", futex(w, FUTEX_LOCK_PI_PRIVATE, 0, 0, 0, 0) == -1 && errno == EDEADLK);
    check("unlock_pi", futex(w, FUTEX_UNLOCK_PI_PRIVATE, 0, 0, 0, 0) == 0 && (w[0] & FUTEX_TID_MASK) == 0);
    sink(w, sizeof w);
    check("trylock_pi", futex(w, FUTEX_TRYLOCK_PI_PRIVATE, 0, 0, 0, 0) == 0 && (w[0] & FUTEX_TID_MASK));
    sink(w, sizeof w);
    check("unlock again", futex(w, FUTEX_UNLOCK_PI_PRIVATE, 0, 0, 0, 0) == 0);
    w[1] = 40;
    check("wake_op", futex(w + 2, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, w + 1, FUTEX_OP(FUTEX_OP_ADD, 2, FUTEX_OP_CMP_EQ, 40)) == 0 && w[1] == 42);
    printf("%u\n", w[1]);
    check("wake_op or", futex(w + 2, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, w + 1, FUTEX_OP(FUTEX_OP_OR, 0x100, FUTEX_OP_CMP_EQ, 0)) == 0 && w[1] == (42 | 0x100));
    sink(w, sizeof w);
    struct timespec t = {0, 5000000};
    check("bitset times out", futex(w, FUTEX_WAIT_BITSET_PRIVATE, w[0], &(struct timespec){1, 0}, 0, 1) == -1 && errno == ETIMEDOUT);
    check("wait times out", futex(w, FUTEX_WAIT_PRIVATE, w[0], &t, 0, 0) == -1 && errno == ETIMEDOUT);
    check("requeue", futex(w, FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)1, w + 3, w[0]) == 0);
    check("unknown", futex(w, 99, 0, 0, 0, 0) == -1 && errno == ENOSYS);
    return done();
}
