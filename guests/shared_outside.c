/* fork with memory that outsiders could share: a file that has a name. */
#include "guest.h"
#include <sys/wait.h>

int main(void) {
    int fd = open("named", O_RDWR | O_CREAT, 0600);
    need("file", fd >= 0 && ftruncate(fd, 4096) == 0);
    int *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need("mmap", at != MAP_FAILED);
    puts("before");
    fflush(stdout);
    if (fork() == 0) {
        *at = 3;
        _exit(0);
    }
    wait(0);
    printf("%d\n", *at);
    return 0;
}
