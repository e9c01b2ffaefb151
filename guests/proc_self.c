/* The rest of /proc/self: exe, cmdline, comm, status, fd, environ, limits, cwd agree with what the program knows. */
#include "guest.h"
#include <dirent.h>
#include <sys/prctl.h>

static char b[65536];
static int slurp(const char *path) {
    int fd = open(path, O_RDONLY), n = 0, r;
    if (fd < 0) return -1;
    while ((r = read(fd, b + n, sizeof b - 1 - n)) > 0) n += r;
    close(fd);
    b[n] = 0;
    return n;
}

int main(int argc, char **argv) {
    char exe[4096] = {0}, cwd[4096], link[4096] = {0};
    check("exe", readlink("/proc/self/exe", exe, sizeof exe - 1) > 0);
    printf("%s\n", strrchr(exe, '/') + 1);
    check("cmdline", slurp("/proc/self/cmdline") > 0 && !strcmp(b, argv[0]) && (argc < 2 || !strcmp(b + strlen(b) + 1, argv[1])));
    check("comm", slurp("/proc/self/comm") > 0 && !strncmp(b, strrchr(argv[0], '/') + 1, 9));
    int threads = 0, tgid = 0, tracer = -1;
    slurp("/proc/self/status");
    sscanf(strstr(b, "\nTgid:"), "\nTgid: %d", &tgid), sscanf(strstr(b, "\nThreads:"), "\nThreads: %d", &threads), sscanf(strstr(b, "\nTracerPid:"), "\nTracerPid: %d", &tracer);
    check("status", tgid == getpid() && threads == 1 && tracer == 0);
    int fd = open("/dev/null", O_RDONLY), n = 0;
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    printf("%d descriptors, newest %d\n", n, fd); /* 0, 1, 2, the new one and the directory's own */
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    check("fd", readlink(link, exe, sizeof exe - 1) > 0 && !strncmp(exe, "/dev/null", 9));
    memset(link, 0, sizeof link);
    check("cwd", readlink("/proc/self/cwd", link, sizeof link - 1) > 0 && getcwd(cwd, sizeof cwd) && !strcmp(cwd, link));
    check("environ", slurp("/proc/self/environ") > 0 && memmem(b, sizeof b, "GUEST_MARK=", 11));
    check("limits", slurp("/proc/self/limits") > 0 && strstr(b, "Max open files"));
    check("io and others open", slurp("/proc/self/statm") > 0 && slurp("/proc/self/smaps") > 0 && slurp("/proc/meminfo") > 0 && slurp("/proc/cpuinfo") > 0);
    sink(b, 4096);
    return done();
}
