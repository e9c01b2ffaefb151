/* A program that changes its root directory, where there is no /proc, and goes on for longer than memory checks are apart. */
#include "guest.h"

int main(void) {
    need("mkdir", mkdir("root", 0700) == 0 || errno == EEXIST);
    answer("chroot", chroot("root") == 0);
    chdir("/");
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 2000; i++) getppid();
        usleep(30000);
        puts("on");
    }
    answer("mkdir", mkdir("/made", 0700) == 0);
    answer("rmdir", rmdir("/made") == 0);
    return done();
}
