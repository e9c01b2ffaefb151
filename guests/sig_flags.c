/* SA_NODEFER lets a handler in again, SA_RESETHAND removes it after once, sa_mask and old actions come back as given. */
#include "guest.h"

static volatile sig_atomic_t depth, deepest, n;
static void nest(int s) {
    if (++depth > deepest) deepest = depth;
    if (n++ < 3) raise(s);
    depth--;
}
static void once(int s) { (void)s; n++; }

int main(void) {
    struct sigaction a = {.sa_handler = nest, .sa_flags = SA_NODEFER}, old;
    sigaction(SIGUSR1, &a, 0);
    raise(SIGUSR1);
    printf("with NODEFER %d deep\n", (int)deepest);
    a.sa_flags = 0, deepest = n = 0;
    sigaction(SIGUSR1, &a, 0);
    raise(SIGUSR1);
    printf("without %d deep, %d in all\n", (int)deepest, (int)n);
    struct sigaction r = {.sa_handler = once, .sa_flags = SA_RESETHAND | SA_RESTART};
    sigaddset(&r.sa_mask, SIGHUP);
    sigaction(SIGURG, &r, 0);
    sigaction(SIGURG, 0, &old);
    check("reads back", old.sa_handler == once && (old.sa_flags & SA_RESETHAND) && (old.sa_flags & SA_RESTART) && sigismember(&old.sa_mask, SIGHUP));
    n = 0;
    raise(SIGURG), raise(SIGURG);
    sigaction(SIGURG, 0, &old);
    check("once", n == 1 && old.sa_handler == SIG_DFL);
    check("KILL refused", sigaction(SIGKILL, &a, 0) == -1 && errno == EINVAL && signal(SIGSTOP, once) == SIG_ERR);
    return done();
}
