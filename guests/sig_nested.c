/* Handlers inside handlers: three signals, each raised in the handler before; masks hold back what they name. */
#include "guest.h"

static char trace[64];
static void add(char c) { trace[strlen(trace)] = c; }
static void third(int s) { (void)s; add('c'); }
static void second(int s) { (void)s; add('b'); raise(SIGTERM); add('B'); }
static void first(int s) { (void)s; add('a'); raise(SIGUSR2); raise(SIGHUP); add('A'); }
static void hup(int s) { (void)s; add('h'); }

int main(void) {
    struct sigaction a = {.sa_handler = first}, b = {.sa_handler = second}, c = {.sa_handler = third}, h = {.sa_handler = hup};
    sigaddset(&a.sa_mask, SIGHUP); /* held back until the first handler returns */
    sigaction(SIGUSR1, &a, 0), sigaction(SIGUSR2, &b, 0), sigaction(SIGTERM, &c, 0), sigaction(SIGHUP, &h, 0);
    raise(SIGUSR1);
    puts(trace);
    check("order", !strcmp(trace, "abcBAh"));
    sigset_t m;
    sigprocmask(SIG_BLOCK, 0, &m);
    check("mask restored", !sigismember(&m, SIGUSR1) && !sigismember(&m, SIGHUP));
    return done();
}
