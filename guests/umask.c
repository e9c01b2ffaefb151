/* The file mode mask: what open, mkdir and mknod make of it, and chmod which does not care. */
#include "guest.h"

static void mode(const char *name) {
    struct stat s;
    need(name, lstat(name, &s) == 0);
    printf("%s %o\n", name, s.st_mode);
}

int main(void) {
    umask(027);
    close(open("a", O_CREAT | O_WRONLY, 0666));
    mkdir("b", 0777);
    printf("old mask %o\n", umask(0));
    close(open("c", O_CREAT | O_WRONLY, 0666));
    mkfifo("d", 0622);
    umask(077);
    chmod("c", 0751);
    mode("a"), mode("b"), mode("c"), mode("d");
    unlink("d");
    return done();
}
