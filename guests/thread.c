/* A second thread. */
#include "guest.h"
#include <pthread.h>

static void *other(void *p) {
    puts("in the thread");
    return p;
}

int main(void) {
    pthread_t t;
    puts("before");
    fflush(stdout);
    int rc = pthread_create(&t, 0, other, (void *)5);
    void *v = 0;
    check("joined", !rc && pthread_join(t, &v) == 0 && v == (void *)5);
    return done();
}
