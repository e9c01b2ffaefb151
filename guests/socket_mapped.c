/* A child that shares memory with its parent maps its sockets. Kernels with zero-copy receive map one of TCP to be read, others none:
 * whatever comes of it, both go on. */
#include "guest.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

static int map(int fd, int protection, int how) {
    void *at = mmap(0, 4096, protection, how, fd, 0);
    if (at == MAP_FAILED) return errno == ENODEV || errno == EPERM;
    return munmap(at, 4096) == 0;
}

int main(void) {
    int *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), status = -1;
    need("mmap", shared != MAP_FAILED);
    for (int children = 0; children < 2; children++) {
        fflush(stdout);
        pid_t child = fork();
        need("fork", child >= 0);
        if (child == 0) {
            int tcp = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0);
            need("socket", tcp >= 0 && udp >= 0);
            check("to be read", map(tcp, PROT_READ, MAP_PRIVATE) && map(udp, PROT_READ, MAP_PRIVATE));
            check("shared", map(tcp, PROT_READ, MAP_SHARED) && map(udp, PROT_READ, MAP_SHARED));
            check("to be written", map(tcp, PROT_READ | PROT_WRITE, MAP_PRIVATE));
            check("no length", mmap(0, 0, PROT_READ, MAP_PRIVATE, tcp, 0) == MAP_FAILED && errno == EINVAL);
            ++*shared;
            _exit(done());
        }
        check("it has ended", waitpid(child, &status, 0) == child && status == 0);
    }
    check("both have stored", *shared == 2);
    return done();
}
