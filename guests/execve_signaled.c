/* A program that becomes itself again and again while signals come: one that is ignored and one that is blocked stay
 * so, and what is pending stays pending (execve(2)). */
#include "guest.h"

enum { ROUNDS = 8 };

int main(int argc, char **argv) {
    int round = argc > 1 ? atoi(argv[1]) : 0;
    sigset_t usr2;
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);

    if (round == 0) {
        signal(SIGUSR1, SIG_IGN);
        sigprocmask(SIG_BLOCK, &usr2, NULL);
        puts("ready");
    }
    struct sigaction now;
    sigset_t blocked;
    sigaction(SIGUSR1, NULL, &now);
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    printf("round %d: usr1 %s, usr2 %s\n", round, now.sa_handler == SIG_IGN ? "ignored" : "taken",
           sigismember(&blocked, SIGUSR2) ? "blocked" : "open");
    fflush(stdout);
    if (round < ROUNDS) {
        char next[12];
        snprintf(next, sizeof next, "%d", round + 1);
        execl("/proc/self/exe", "again", next, (char *)NULL);
        return 1;
    }
    struct timespec limit = {20, 0};
    check("usr2 came", sigtimedwait(&usr2, NULL, &limit) == SIGUSR2);
    return 0;
}
