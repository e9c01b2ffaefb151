/* Resource limits: EMFILE at RLIMIT_NOFILE, EFBIG and SIGXFSZ at RLIMIT_FSIZE. */
#include "guest.h"
#include <sys/resource.h>

static volatile sig_atomic_t seen;
static void on(int s) { seen = s; }

int main(void) {
    struct rlimit r = {20, 20}, g;
    check("set descriptors", setrlimit(RLIMIT_NOFILE, &r) == 0 && getrlimit(RLIMIT_NOFILE, &g) == 0 && g.rlim_cur == 20);
    int last = -1, fd;
    while ((fd = open("/dev/null", O_RDONLY)) >= 0) last = fd;
    printf("last descriptor %d: %s\n", last, strerror(errno));
    check("dup2 beyond", dup2(1, 20) == -1 && errno == EBADF);
    close(last);
    fd = open("small", O_RDWR | O_CREAT | O_TRUNC, 0644);
    r = (struct rlimit){1000, 1000};
    setrlimit(RLIMIT_FSIZE, &r);
    signal(SIGXFSZ, on);
    char b[1500] = {1};
    check("short write", write(fd, b, sizeof b) == 1000);
    check("then EFBIG", write(fd, b, 1) == -1 && errno == EFBIG && seen == SIGXFSZ);
    return done();
}
