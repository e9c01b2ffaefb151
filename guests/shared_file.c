/* Files without a name that parent and child share as memory: one that was unlinked, a memfd, a semaphore of sem_open(3). */
#define _GNU_SOURCE
#include "guest.h"
#include <semaphore.h>
#include <sys/wait.h>

static void join(void) {
    int status;
    need("wait", wait(&status) > 0);
    need("child", status == 0);
}

static int *map(int fd) {
    need("size", ftruncate(fd, 8192) == 0);
    int *at = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need("mmap", at != MAP_FAILED);
    return at;
}

int main(void) {
    char name[64];
    int fd = open("unlinked", O_RDWR | O_CREAT | O_EXCL, 0600), memory = memfd_create("guest", 0);
    need("files", fd >= 0 && memory >= 0);
    need("before", pwrite(fd, "\5", 1, 0) == 1);
    int *a = map(fd), *b = map(memory);
    a[1] = 7;
    need("unlink", unlink("unlinked") == 0);
    snprintf(name, sizeof name, "/shared-guest-%d", getpid());
    sem_t *s = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
    need("semaphore", s != SEM_FAILED && sem_unlink(name) == 0);
    fflush(stdout);
    if (fork() == 0) {
        a[0] += a[1];
        for (int i = 0; i < 1000; i++) b[i] = i * a[0];
        sem_post(s);
        _exit(0);
    }
    sem_wait(s);
    printf("%d %d\n", a[0], b[999]);
    join();
    /* What is stored is in the file. */
    int seen = 0;
    need("pread", pread(fd, &seen, sizeof seen, 0) == sizeof seen);
    printf("%d\n", seen);
    need("protect", mprotect(b, 4096, PROT_READ) == 0);
    if (fork() == 0) {
        b[1024] = b[1];
        _exit(0);
    }
    join();
    printf("%d\n", b[1024]);
    need("unmap", munmap(a, 8192) == 0 && munmap(b, 8192) == 0);
    return done();
}
