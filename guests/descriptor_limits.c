/* Running out of descriptors, and what still works then: the numbers are those of a bare run to the last one. */
#include "guest.h"
#include <sys/resource.h>
#include <sys/socket.h>

int main(void) {
    struct rlimit l;
    need("limit", getrlimit(RLIMIT_NOFILE, &l) == 0);
    l.rlim_cur = 60;
    check("lowered", setrlimit(RLIMIT_NOFILE, &l) == 0);
    int n = 0, last = -1, fd;
    while ((fd = open("/dev/null", O_RDONLY)) >= 0) n++, last = fd;
    printf("opened %d up to %d: %s\n", n, last, strerror(errno));
    int p[2], s[2];
    check("pipe", pipe(p) == -1 && errno == EMFILE);
    check("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, s) == -1 && errno == EMFILE);
    check("dup2 beyond", dup2(0, 60) == -1 && errno == EBADF);
    check("dupfd beyond", fcntl(0, F_DUPFD, 60) == -1 && errno == EINVAL);
    void *m = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check("memory", m != MAP_FAILED);
    close(last);
    check("one again", open("/dev/null", O_RDONLY) == last && open("/dev/null", O_RDONLY) == -1);
    for (int i = 0; i < 300; i++) close(40), need("dup", dup2(0, 40) == 40);
    return done();
}
