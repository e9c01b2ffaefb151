/* A named unix socket: bind, listen, connect, accept, its name in the directory, an abstract name, a stale name. */
#include "guest.h"
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

int main(void) {
    int l = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "sock"};
    char b[16] = {0};
    check("bind", bind(l, (void *)&a, sizeof a) == 0 && listen(l, 1) == 0);
    check("connect", connect(c, (void *)&a, sizeof a) == 0);
    int s = accept(l, 0, 0);
    check("talk", write(c, "across", 6) == 6 && read(s, b, 16) == 6 && !strcmp(b, "across"));
    struct stat st;
    check("in the directory", stat("sock", &st) == 0 && S_ISSOCK(st.st_mode));
    close(l);
    check("stale", connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&a, sizeof a) == -1 && errno == ECONNREFUSED);
    unlink("sock");
    int x = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct sockaddr_un n = {.sun_family = AF_UNIX};
    socklen_t len = sizeof n;
    check("autobind", bind(x, (void *)&n, sizeof(sa_family_t)) == 0 && getsockname(x, (void *)&n, &len) == 0 && len == offsetof(struct sockaddr_un, sun_path) + 6);
    sink(&n, len);
    return done();
}
