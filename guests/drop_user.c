/* A program started by root that becomes an ordinary user: files belong to that user afterwards. */
#include "guest.h"
#include <grp.h>

int main(void) {
    struct stat s;
    if (getuid() == 0) {
        check("groups", setgroups(0, 0) == 0);
        check("group", setresgid(65534, 65534, 65534) == 0);
        check("user", setresuid(65534, 65534, 65534) == 0 && getuid() == 65534 && geteuid() == 65534);
        check("no way back", setuid(0) == -1 && errno == EPERM);
        check("shadow unreadable", open("/etc/shadow", O_RDONLY) == -1 && errno == EACCES);
    }
    check("stat", stat("/proc/self", &s) == 0);
    return done();
}
