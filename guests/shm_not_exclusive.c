/* A shared memory object that whoever comes first makes: opened with O_CREAT and without O_EXCL, and mapped twice. */
#include "guest.h"
#include <sys/wait.h>

static char name[64];

static volatile int *maps(int flags, int protection) {
    const int fd = shm_open(name, flags, 0600);
    volatile int *p;
    need("shm_open", fd >= 0);
    if (flags & O_CREAT) need("ftruncate", ftruncate(fd, 4096) == 0);
    p = mmap(0, 4096, protection, MAP_SHARED, fd, 0);
    need("mmap", p != MAP_FAILED);
    close(fd);
    return p;
}

int main(void) {
    int status;
    snprintf(name, sizeof name, "/guest-not-exclusive-%d", getpid());
    volatile int *to = maps(O_RDWR | O_CREAT, PROT_READ | PROT_WRITE);
    to[0] = 7;
    volatile int *from = maps(O_RDONLY, PROT_READ);
    check("seen through the other", from[0] == 7);
    to[1] = 8;
    check("and later", from[1] == 8);

    pid_t child = fork();
    if (child == 0) {
        volatile int *there = maps(O_RDWR | O_CREAT, PROT_READ | PROT_WRITE);
        there[2] = there[0] + there[1];
        _exit(0);
    }
    waitpid(child, &status, 0);
    check("of another process", status == 0 && from[2] == 15);
    check("gone", shm_unlink(name) == 0 && shm_open(name, O_RDWR, 0) == -1 && errno == ENOENT);
    return done();
}
