/* What is mapped shared by a descriptor that was opened for reading, or is sealed, never becomes writable. */
#define _GNU_SOURCE
#include "guest.h"
#include <sys/wait.h>

enum { BYTES = 8192 };

static char name[64];

static void becomes(const char *what, int fd) {
    char *at = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    need(what, at != MAP_FAILED);
    answer(what, mprotect(at, BYTES, PROT_READ | PROT_WRITE) == 0);
    printf("holds %d, and from the start ", at[BYTES - 1]);
    answer("writable", mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
    check("readable on", mprotect(at, BYTES, PROT_NONE) == 0 && mprotect(at, BYTES, PROT_READ) == 0);
    munmap(at, BYTES);
    close(fd);
}

static void in_place(void) {
    int fd = open("/dev/zero", O_RDONLY);
    char *at = mmap(NULL, 4 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need("room", at != MAP_FAILED);
    memset(at, 'x', 4 * BYTES);
    need("in place", mmap(at + BYTES, BYTES, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == at + BYTES);
    answer("in place", mprotect(at + BYTES, BYTES, PROT_READ | PROT_WRITE) == 0);
    answer("with what lies around it", mprotect(at + 2 * BYTES, BYTES, PROT_READ | PROT_WRITE) == 0);
    printf("%c %d %c\n", at[0], at[BYTES], at[2 * BYTES]);
    need("over it", mmap(at + BYTES, BYTES, PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == at + BYTES);
    answer("something else there", mprotect(at + BYTES, BYTES, PROT_READ | PROT_WRITE) == 0);
    munmap(at, 4 * BYTES);
    close(fd);
}

static int object(int seal) {
    int fd = memfd_create("only_read", MFD_ALLOW_SEALING);
    need("object", fd >= 0 && ftruncate(fd, BYTES) == 0 && fcntl(fd, F_ADD_SEALS, seal) == 0);
    return fd;
}

static void all(void) {
    becomes("zeros", open("/dev/zero", O_RDONLY));
    becomes("zeros to write", open("/dev/zero", O_RDWR));
    becomes("a file", open(name, O_RDONLY));
    becomes("a sealed object", object(F_SEAL_WRITE));
    in_place();
    fflush(stdout);
}

int main(void) {
    int status, fd;
    /* Found by its name by several processes, it is memory of theirs. */
    snprintf(name, sizeof name, "/dev/shm/only_read.%d", getpid());
    fd = open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
    need("file", fd >= 0 && ftruncate(fd, BYTES) == 0);
    all();
    pid_t child = fork();
    if (child == 0) {
        all();
        _exit(guest_failed);
    }
    need("wait", waitpid(child, &status, 0) == child);
    printf("child: %x\n", status);
    all();
    unlink(name);
    return done();
}
