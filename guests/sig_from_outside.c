/* Waits for signals from outside: HUP and USR1 are counted, INT prints, TERM ends with status 5. Says "ready" first. */
#include "guest.h"

static volatile sig_atomic_t hup, usr, intr, term;
static void on(int s) { s == SIGHUP ? hup++ : s == SIGUSR1 ? usr++ : s == SIGINT ? intr++ : term++; }

int main(void) {
    struct sigaction a = {.sa_handler = on};
    sigset_t all, old;
    sigaction(SIGHUP, &a, 0), sigaction(SIGUSR1, &a, 0), sigaction(SIGINT, &a, 0), sigaction(SIGTERM, &a, 0);
    sigfillset(&all), sigprocmask(SIG_BLOCK, &all, &old);
    puts("ready"), fflush(stdout);
    for (int h = 0, u = 0, i = 0; !term;) {
        sigsuspend(&old);
        if (h != hup) h = hup, printf("hup %d\n", h);
        if (u != usr) u = usr, printf("usr %d\n", u);
        if (i != intr) i = intr, printf("int %d\n", i);
        fflush(stdout);
    }
    puts("term");
    fflush(stdout);
    return 5;
}
