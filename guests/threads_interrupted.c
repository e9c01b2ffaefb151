/* Signals to a thread that computes without a call: each handler finds it at an instruction of its loop, by which schedulers in programs
 * (Go's) know that it may be stopped there. */
#include "guest.h"
#include <pthread.h>
#include <ucontext.h>

extern char __start_looped, __stop_looped;
static volatile int inside, outside, stop;
static volatile unsigned long x;

static void handler(int sig, siginfo_t *info, void *context) {
    char *rip = (char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    (void)sig, (void)info;
    if (rip >= &__start_looped && rip < &__stop_looped)
        inside++;
    else
        outside++;
}

__attribute__((section("looped"), noinline)) static void loop(void) {
    while (!stop) {
        x++;
        x ^= 3;
    }
}

static void *computes(void *arg) {
    loop();
    return arg;
}

int main(void) {
    struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    pthread_t t;
    need("sigaction", sigaction(SIGUSR1, &a, NULL) == 0);
    need("pthread_create", pthread_create(&t, NULL, computes, NULL) == 0);
    /* It has begun to compute. */
    while (!x) usleep(1000);
    for (int i = 0; i < 12; i++) {
        int before = inside + outside;
        need("pthread_kill", pthread_kill(t, SIGUSR1) == 0);
        while (inside + outside == before) usleep(1000);
    }
    stop = 1;
    need("pthread_join", pthread_join(t, NULL) == 0);
    check("all in the loop", inside == 12 && outside == 0);
    return done();
}
