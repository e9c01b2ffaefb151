/* Whoever is interrupted in a call that waits: a handler walks the stack to the function that made the call, the call goes on behind
 * it, and destructors run in a thread that is cancelled there. */
#include "guest.h"
#include <execinfo.h>
#include <pthread.h>
#include <sys/time.h>
#include <ucontext.h>

extern "C" char __start_walked, __stop_walked;
static volatile int found, at_call;
static int ends[2];

static void walks(int, siginfo_t *, void *context) {
    auto *u = static_cast<ucontext_t *>(context);
    auto *rip = reinterpret_cast<unsigned char *>(u->uc_mcontext.gregs[REG_RIP]);
    void *frames[64];
    int n = backtrace(frames, 64);
    for (int i = 0; i < n; i++) found |= frames[i] >= &__start_walked && frames[i] < &__stop_walked;
    /* Behind the instruction of the call, or at it. */
    at_call = rip >= reinterpret_cast<unsigned char *>(0x1000) && u->uc_mcontext.gregs[REG_RIP] >> 40 != 0x2a;
    need("write", write(ends[1], "x", 1) == 1);
}

struct Says {
    ~Says() { puts("destructor"); }
};

__attribute__((noinline, section("walked"))) static long reads(int fd) {
    char c = 0;
    long n = read(fd, &c, 1);
    return n == 1 ? c : n;
}

static void *waits(void *) {
    Says says;
    int p[2];
    need("pipe", pipe(p) == 0);
    reads(p[0]);
    return nullptr;
}

int main() {
    struct sigaction a = {};
    a.sa_sigaction = walks;
    a.sa_flags = SA_SIGINFO | SA_RESTART;
    need("sigaction", sigaction(SIGALRM, &a, nullptr) == 0 && pipe(ends) == 0);
    void *first[1];
    backtrace(first, 1); /* loads what it needs */
    for (int i = 0; i < 3; i++) {
        struct itimerval soon = {{0, 0}, {0, 50000}};
        found = at_call = 0;
        need("setitimer", setitimer(ITIMER_REAL, &soon, nullptr) == 0);
        check("the call goes on", reads(ends[0]) == 'x');
        check("the handler finds who made it", found);
        check("it is the program's", at_call);
    }
    for (int i = 0; i < 3; i++) {
        pthread_t t;
        void *result;
        need("pthread_create", pthread_create(&t, nullptr, waits, nullptr) == 0);
        usleep(50000);
        need("pthread_cancel", pthread_cancel(t) == 0 && pthread_join(t, &result) == 0);
        check("cancelled", result == PTHREAD_CANCELED);
    }
    return done();
}
