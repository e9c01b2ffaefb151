/* A program that gives up root, or also changes its root directory, and then executes itself: as setpriv and chroot
 * do for others. As an ordinary user it stays who it is. */
#include "guest.h"
#include <grp.h>
#include <sys/auxv.h>

extern char **environ;

int main(int argc, char **argv) {
    if (argc > 1) {
        printf("%s: uid %s, root %s\n", argv[1], geteuid() ? "ordinary" : "0", access("/proc/self", F_OK) ? "changed" : "as before");
        check("writes", write(1, "", 0) == 0);
        return done();
    }
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    need("/proc/self/exe", fd >= 0);
    if (getuid() == 0) {
        /* In an empty root there is no loader, which a static program does not need. */
        if (!getauxval(AT_BASE)) need("root", mkdir("root", 0755) == 0 && chroot("root") == 0 && chdir("/") == 0);
        need("rights", setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
    }
    char *args[] = {argv[0], "second", NULL};
    fexecve(fd, args, environ);
    perror("fexecve");
    return 1;
}
