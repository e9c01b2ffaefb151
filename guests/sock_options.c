/* Socket options: flat ones as bare, those whose value is a pointer or shared memory as a kernel without them. */
#include "guest.h"
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

int main(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0), v = 1, back = 0;
    socklen_t n = sizeof back;
    need("socket", s >= 0);
    check("reuse", setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &v, sizeof v) == 0 && getsockopt(s, SOL_SOCKET, SO_REUSEADDR, &back, &n) == 0 && back == 1);
    check("nodelay", setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &v, sizeof v) == 0);
    struct linger l = {1, 3}, m = {0, 0};
    n = sizeof m;
    check("linger", setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l) == 0 && getsockopt(s, SOL_SOCKET, SO_LINGER, &m, &n) == 0 && m.l_linger == 3);
    check("short", setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &v, 1) == -1 && errno == EINVAL);
    struct tcp_info info;
    n = sizeof info;
    check("info", getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &n) == 0 && n > 0);
    sink(&info, n);
    check("no such", getsockopt(s, SOL_SOCKET, 9999, &back, &n) == -1 && errno == ENOPROTOOPT);
    struct sock_filter code = BPF_STMT(BPF_RET | BPF_K, 0xffff);
    struct sock_fprog program = {1, &code};
    answer("filter", setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0);
    answer("zerocopy", setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &v, sizeof v) == 0);
    n = sizeof back;
    check("zerocopy asked", getsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &back, &n) == 0);
    return done();
}
