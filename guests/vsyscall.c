/* The legacy page at 0xffffffffff600000, as binaries built before 2012 call it: gettimeofday, time, getcpu. */
#include "guest.h"
#include <sys/time.h>

int main(void) {
    struct timeval at = {0, 0};
    unsigned cpu = -1, node = -1;
    puts("before");
    fflush(stdout);
    for (int i = 0; i < 20; i++) {
        long now = ((long (*)(long *))0xffffffffff600400)(0), kept = 0;
        int asked = ((int (*)(struct timeval *, void *))0xffffffffff600000)(&at, 0);
        int where = ((int (*)(unsigned *, unsigned *, void *))0xffffffffff600800)(&cpu, &node, 0);
        ((long (*)(long *))0xffffffffff600400)(&kept);
        sink(&now, sizeof now), sink(&at, sizeof at), sink(&cpu, sizeof cpu), sink(&kept, sizeof kept);
        if (labs(now - time(0)) > 1 || asked || labs(at.tv_sec - time(0)) > 1 || where || cpu >= 4096 || labs(kept - now) > 1)
            return 1;
    }
    check("near the clock, on a processor", 1);
    return done();
}
