/* prctl: name, dumpable, no_new_privs, parent death signal, timer slack, and an option of another processor. */
#include "guest.h"
#include <sys/prctl.h>

int main(void) {
    char name[16];
    int v = 0;
    check("name", prctl(PR_SET_NAME, "renamed") == 0 && prctl(PR_GET_NAME, name) == 0 && !strcmp(name, "renamed"));
    check("dumpable", prctl(PR_SET_DUMPABLE, 0) == 0 && prctl(PR_GET_DUMPABLE) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
    check("death signal", prctl(PR_SET_PDEATHSIG, SIGUSR2) == 0 && prctl(PR_GET_PDEATHSIG, &v) == 0 && v == SIGUSR2);
    check("no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    check("slack", prctl(PR_SET_TIMERSLACK, 12345) == 0 && prctl(PR_GET_TIMERSLACK) == 12345);
    check("another processor's", prctl(PR_SET_UNALIGN, 0, 0, 0, 0) == -1 && errno == EINVAL);
    return done();
}
