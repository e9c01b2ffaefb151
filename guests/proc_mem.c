/* Reads its own memory through /proc/self/mem: data, code, and a hole. */
#include "guest.h"

int main(void) {
    char secret[] = "read through the file", b[64] = {0};
    int fd = open("/proc/self/mem", O_RDONLY);
    puts("before");
    fflush(stdout);
    check("data", pread(fd, b, sizeof secret, (off_t)(uintptr_t)secret) == sizeof secret && !strcmp(b, secret));
    check("code", pread(fd, b, 4, (off_t)(uintptr_t)main) == 4 && !memcmp(b, (void *)main, 4));
    check("hole", pread(fd, b, 1, 4096) == -1 && errno == EIO);
    return done();
}
