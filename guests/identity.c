/* Who am I: getpid, /proc/self/stat, /proc/self, gettid, the parent, group and session agree with each other. */
#include "guest.h"

int main(void) {
    char b[4096] = {0}, link[64] = {0}, path[64];
    int pid = 0, ppid = 0, pgrp = 0, session = 0;
    int fd = open("/proc/self/stat", O_RDONLY);
    need("stat", fd >= 0 && read(fd, b, sizeof b - 1) > 0);
    need("scan", sscanf(b, "%d", &pid) == 1 && sscanf(strrchr(b, ')') + 2, "%*c %d %d %d", &ppid, &pgrp, &session) == 3);
    check("pid", pid == getpid());
    check("parent", ppid == getppid());
    check("group", pgrp == getpgrp() && pgrp == getpgid(0));
    check("session", session == getsid(0));
    check("thread", syscall(SYS_gettid) == getpid());
    check("/proc/self", readlink("/proc/self", link, sizeof link) > 0 && atoi(link) == getpid());
    check("/proc/thread-self", readlink("/proc/thread-self", link, sizeof link) > 0 && atoi(link) == getpid());
    snprintf(path, sizeof path, "/proc/%d/stat", getpid());
    check("by number", access(path, R_OK) == 0);
    check("kill 0", kill(getpid(), 0) == 0 && syscall(SYS_tgkill, getpid(), getpid(), 0) == 0);
    check("users", getuid() == geteuid() && getgid() == getegid());
    check("no children", syscall(SYS_wait4, -1, 0, 0, 0) == -1 && errno == ECHILD);
    return done();
}
