/* futex within one thread: a value that differs, a wait that times out, a wake that wakes nobody; robust and PI mutexes. */
#include "guest.h"
#include <linux/futex.h>
#include <pthread.h>

int main(void) {
    uint32_t w = 5;
    struct timespec t = {0, 10000000};
    check("differs", syscall(SYS_futex, &w, FUTEX_WAIT_PRIVATE, 4, 0, 0, 0) == -1 && errno == EAGAIN);
    check("times out", syscall(SYS_futex, &w, FUTEX_WAIT_PRIVATE, 5, &t, 0, 0) == -1 && errno == ETIMEDOUT);
    check("wakes nobody", syscall(SYS_futex, &w, FUTEX_WAKE_PRIVATE, 10, 0, 0, 0) == 0);
    pthread_mutexattr_t a;
    pthread_mutex_t m;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST), pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
    check("robust", pthread_mutex_init(&m, &a) == 0 && pthread_mutex_lock(&m) == 0 && pthread_mutex_lock(&m) == EDEADLK && pthread_mutex_unlock(&m) == 0);
    pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
    check("inheriting", pthread_mutex_init(&m, &a) == 0 && pthread_mutex_lock(&m) == 0 && pthread_mutex_unlock(&m) == 0);
    sink(&m, sizeof m); /* held the thread's number a moment ago */
    return done();
}
