/* Processes that share memory and fault where a handler's frame has no room: each ends by SIGSEGV, and the others go on. */
#include "guest.h"
#include <stdatomic.h>
#include <sys/wait.h>

static atomic_int *s;
static volatile int *nowhere;

static void handler(int sig) { _exit(sig); }

static void faults(int blocked) {
    /* No room for a frame: what it would be built in may not be stored to. */
    static char stack[65536] __attribute__((aligned(4096)));
    stack_t ss = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigset_t set;
    need("mprotect", mprotect(stack, sizeof stack, PROT_NONE) == 0);
    need("sigaltstack", sigaltstack(&ss, NULL) == 0);
    need("sigaction", sigaction(SIGSEGV, &sa, NULL) == 0);
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    if (blocked) need("sigprocmask", sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    atomic_fetch_add(s, 1);
    *nowhere = 1;
    _exit(0);
}

int main(void) {
    s = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", s != MAP_FAILED);
    for (int i = 0; i < 8; i++) {
        int status;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) faults(i & 1);
        need("wait", waitpid(child, &status, 0) == child);
        printf("%d ended by %d\n", atomic_load(s), WIFSIGNALED(status) ? WTERMSIG(status) : -1);
    }
    return done();
}
