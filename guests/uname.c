/* What the system is called: uname, hostname, page size, processors, /etc/passwd lookup of root. */
#include "guest.h"
#include <pwd.h>
#include <sys/utsname.h>

int main(void) {
    struct utsname u;
    char host[256];
    check("uname", uname(&u) == 0);
    printf("%s %s %s\n", u.sysname, u.release, u.machine);
    check("hostname", gethostname(host, sizeof host) == 0 && !strcmp(host, u.nodename));
    printf("%ld processors, user 0 is %s\n", sysconf(_SC_NPROCESSORS_ONLN), getpwuid(0) ? getpwuid(0)->pw_name : "?");
    return done();
}
