/* Writes its own memory through /proc/self/mem: a store that no instruction of the program makes. */
#include "guest.h"

int main(void) {
    static volatile int target = 1;
    puts("before");
    fflush(stdout);
    int fd = open("/proc/self/mem", O_RDWR), v = 77;
    check("write", pwrite(fd, &v, sizeof v, (off_t)(uintptr_t)&target) == sizeof v);
    check("arrived", target == 77);
    return done();
}
