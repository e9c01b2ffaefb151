/* A computation without calls that is in another state at every instruction, ended by an alarm: twelve times. Where to hear the
 * first one takes a search, and the others come to the same loop: they are no later than that by seconds in all. `shared`: so too where a child, which sleeps,
 * shares memory with it, and three times only. */
#include "guest.h"
#include <sys/time.h>
#include <sys/wait.h>

static volatile sig_atomic_t over;
static uint32_t table[4096];
static double heard;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void alarmed(int s) {
    (void)s;
    heard = now();
    over = 1;
}

__attribute__((noinline)) static void round_of(uint32_t *t) {
    for (unsigned i = 0; i < 4096; i++) t[i] = (t[i] ^ t[(i * 7 + 1) % 4096] << 7) * 2654435761u + i;
}

int main(int argc, char **argv) {
    int shared = argc > 1 && !strcmp(argv[1], "shared");
    pid_t child = 0;
    struct itimerval once = {{0, 0}, {0, 100000}};
    double late = 0;
    signal(SIGALRM, alarmed);
    if (shared) {
        volatile int *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        need("mmap", word != MAP_FAILED);
        child = fork();
        need("fork", child >= 0);
        while (!child) {
            *word = 1;
            pause();
        }
        while (!*word) usleep(1000);
    }
    for (int n = 0; n < (shared ? 3 : 12); n++) {
        over = 0;
        double set = now();
        need("setitimer", setitimer(ITIMER_REAL, &once, 0) == 0);
        while (!over) round_of(table);
        if (n >= 2) late += heard - set - 0.1;
    }
    if (late > 15) fprintf(stderr, "late by %.1f s\n", late);
    check("ten alarms late by less than 15 s in all", late < 15);
    if (child) need("kill", kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    sink(table, sizeof table);
    return done();
}
