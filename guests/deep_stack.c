/* Deep recursion: the stack grows by itself to 7 MiB, with a system call at every level. */
#include "guest.h"

static long down(int n) {
    volatile char frame[1000];
    frame[0] = frame[999] = n;
    if (syscall(SYS_getppid) <= 0) return -1000000;
    long below = n ? down(n - 1) : 0;
    return below + frame[0] + frame[999];
}

int main(void) {
    printf("sum %ld\n", down(6500));
    volatile char big[1 << 20];
    big[0] = 1;
    printf("again %ld\n", down(10) + big[0]);
    return done();
}
