/* A limit on processor time: SIGXCPU after one second of it, default action. */
#include "guest.h"
#include <sys/resource.h>

int main(void) {
    struct rlimit r = {1, 5};
    check("set", setrlimit(RLIMIT_CPU, &r) == 0);
    fflush(stdout);
    for (volatile unsigned i = 0;; i++);
}
