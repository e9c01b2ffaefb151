/* A daemon in the old way: forks twice, leads a session, lets go of its streams and directory, and leaves its number and its
 * port in a file. It doubles numbers until SIGTERM, at which it takes the file away. The signal comes while it waits for a peer, and at
 * no other time: between a look at `ends` and accept(2) it would be lost. */
#include "guest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

static volatile sig_atomic_t ends;
static void term(int signal) { (void)signal; ends = 1; }

static void copies_itself(void) {
    pid_t p = fork();
    need("fork", p >= 0);
    if (p) _exit(0);
}

static void serve(int listener, const sigset_t *with_term) {
    char line[64];
    struct pollfd comes = {.fd = listener, .events = POLLIN};
    if (ppoll(&comes, 1, 0, with_term) < 0) return;
    int peer = accept(listener, 0, 0);
    if (peer < 0) return;
    ssize_t n;
    while ((n = read(peer, line, sizeof line - 1)) > 0) {
        line[n] = 0;
        n = snprintf(line, sizeof line, "%ld\n", 2 * atol(line));
        if (write(peer, line, (size_t)n) != n) break;
    }
    close(peer);
}

int main(int argc, char **argv) {
    const char *file = argc > 1 ? argv[1] : "daemon.pid";
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    need("listen", listener >= 0 && !bind(listener, (void *)&at, len) && !listen(listener, 8) && !getsockname(listener, (void *)&at, &len));
    printf("goes on alone\n");
    fflush(stdout);
    copies_itself();
    need("setsid", setsid() > 0);
    copies_itself();
    int null = open("/dev/null", O_RDWR);
    need("/dev/null", null >= 0 && dup2(null, 0) == 0 && dup2(null, 1) == 1 && dup2(null, 2) == 2);
    need("chdir", chdir("/") == 0);
    struct sigaction a = {.sa_handler = term};
    sigset_t blocked, with_term;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    need("mask", !sigprocmask(SIG_BLOCK, &blocked, &with_term) && !sigaction(SIGTERM, &a, 0));
    FILE *f = fopen(file, "w");
    need("pid file", f && fprintf(f, "%d %d\n", getpid(), ntohs(at.sin_port)) > 0 && fclose(f) == 0);
    while (!ends) serve(listener, &with_term);
    unlink(file);
    return 0;
}
