/* Other ways to the memory of the process itself than its usual name: all lead to the same refusal. */
#include "guest.h"
#include <linux/openat2.h>

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "openat";
    int fd = -1, dir;
    puts("before");
    fflush(stdout);
    if (!strcmp(how, "chdir")) {
        need("chdir", chdir("/proc/self") == 0);
        fd = open("mem", O_RDWR);
    } else if (!strcmp(how, "openat")) {
        need("dir", (dir = open("/proc/self", O_RDONLY | O_DIRECTORY)) >= 0);
        fd = openat(dir, "mem", O_WRONLY);
    } else if (!strcmp(how, "openat2")) {
        struct open_how h = {.flags = O_RDWR};
        fd = syscall(SYS_openat2, AT_FDCWD, "/proc/thread-self/mem", &h, sizeof h);
    } else if (!strcmp(how, "creat")) {
        fd = creat("/proc/self/../self/mem", 0600);
    }
    printf("opened: %d\n", fd >= 0);
    return done();
}
