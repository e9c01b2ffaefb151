/* A file in memory that is stored to behind a mapping: its times change. And a mapping that is longer than any can be. */
#include "guest.h"

static struct timespec changed(int fd) {
    struct stat st;
    need("fstat", fstat(fd, &st) == 0);
    return st.st_mtim;
}

static int is_later(struct timespec a, struct timespec b) {
    return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

int main(void) {
    char name[64], byte = 0;
    snprintf(name, sizeof name, "/guest-times-%d", getpid());
    const int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    need("shm_open", fd >= 0);
    shm_unlink(name);
    need("ftruncate", ftruncate(fd, 8192) == 0);
    char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need("mmap", p != MAP_FAILED);
    for (int at = 0; at < 8192; at += 4096) {
        usleep(30000);
        const struct timespec before = changed(fd);
        p[at] = 'x';
        usleep(30000);
        check("synced", msync(p, 8192, MS_SYNC) == 0);
        check("in the file", pread(fd, &byte, 1, at) == 1 && byte == 'x');
        check("at a later time", is_later(changed(fd), before));
    }
    check("longer than memory", mmap(p, ~4095ul, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED && errno == ENOMEM);
    check("still there", p[0] == 'x');
    return done();
}
