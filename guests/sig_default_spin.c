/* Death by SIGALRM, default action, in a loop without system calls. */
#include "guest.h"
#include <sys/time.h>

int main(void) {
    puts("spinning");
    fflush(stdout);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 30000}}, 0);
    for (volatile long i = 0;; i++);
}
