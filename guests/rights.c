/* Rights given up piece by piece, by root and by anybody: bounding set, ambient set, securebits, capset, no_new_privs,
 * dumpability. What is refused to an ordinary user is refused in every replica. */
#include "guest.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>

static void said(const char *what, long r) { printf("%s: %s\n", what, r < 0 ? strerror(errno) : "done"); }

int main(void) {
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2];
    said("drop from the bounding set", prctl(PR_CAPBSET_DROP, CAP_SYS_TIME, 0, 0, 0));
    printf("there: %d\n", prctl(PR_CAPBSET_READ, CAP_SYS_TIME, 0, 0, 0));
    said("securebits", prctl(PR_SET_SECUREBITS, 0, 0, 0, 0));
    said("ambient", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
    said("keep", prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0));
    said("setgroups", setgroups(0, 0));
    said("capget", syscall(SYS_capget, &h, d));
    d[0].effective &= ~(1u << CAP_NET_RAW), d[0].permitted &= ~(1u << CAP_NET_RAW), d[0].inheritable = 0;
    said("capset", syscall(SYS_capset, &h, d));
    d[0].permitted = d[0].effective = ~0u;
    said("more than there is", syscall(SYS_capset, &h, d));
    said("no new privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    said("not dumpable", prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
    printf("dumpable: %d\n", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
    for (int i = 0; i < 200; i++) sink(d, sizeof d);
    said("dumpable", prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
    printf("dumpable: %d\n", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
    said("root", setuid(0));
    said("another", setresuid(12345, 12345, 12345));
    return done();
}
