/* A limit on processor time that is hard: SIGKILL after one second of it, which nobody can handle. Output that
 * stands in buffers is lost with it. */
#include "guest.h"
#include <signal.h>
#include <sys/resource.h>

int main(void) {
    struct rlimit r = {1, 1};
    signal(SIGXCPU, SIG_IGN);
    check("set", setrlimit(RLIMIT_CPU, &r) == 0);
    fflush(stdout);
    printf("never seen\n");
    for (volatile unsigned i = 0;; i++);
}
