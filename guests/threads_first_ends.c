/* The first thread ends and the others go on; somebody waits for it; the last one's end is the program's. */
#include "guest.h"
#include <pthread.h>

static void *goes_on(void *first) {
    void *v = 0;
    check("joined", pthread_join(*(pthread_t *)first, &v) == 0 && v == (void *)3);
    for (int i = 0; i < 3; i++) printf("after it, %d\n", i);
    fflush(stdout);
    return 0;
}

int main(void) {
    static pthread_t self;
    pthread_t t;
    self = pthread_self();
    puts("before");
    pthread_create(&t, 0, goes_on, &self);
    pthread_exit((void *)3);
}
