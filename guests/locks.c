/* Locks: fcntl record locks, open file description locks, flock between two descriptors of one file, lockf. */
#include "guest.h"
#include <sys/file.h>

int main(void) {
    int a = open("locked", O_RDWR | O_CREAT, 0644), b = open("locked", O_RDWR);
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
    check("record lock", fcntl(a, F_SETLK, &l) == 0);
    check("same process may again", fcntl(b, F_SETLK, &l) == 0);
    check("and sees none", fcntl(b, F_GETLK, &l) == 0 && l.l_type == F_UNLCK);
    struct flock o = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 5};
    check("description lock", fcntl(a, F_OFD_SETLK, &o) == 0);
    check("other description may not", fcntl(b, F_OFD_SETLK, &o) == -1 && errno == EAGAIN);
    check("asks who", fcntl(b, F_OFD_GETLK, &o) == 0 && o.l_type == F_WRLCK && o.l_pid == -1);
    check("flock", flock(a, LOCK_EX) == 0);
    check("flock busy", flock(b, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
    check("flock after release", flock(a, LOCK_UN) == 0 && flock(b, LOCK_EX | LOCK_NB) == 0);
    check("lockf", lockf(a, F_TLOCK, 3) == 0);
    return done();
}
