/* A limit on address space: a mapping within it works, one beyond it says ENOMEM and malloc copes. A child has it, too. */
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

static int is(const struct rlimit *r, rlim_t soft, rlim_t hard) { return r->rlim_cur == soft && r->rlim_max == hard; }

int main(void) {
    struct rlimit r = {200ul << 20, 300ul << 20}, old, lower = {150ul << 20, 200ul << 20};
    int status;
    check("set", setrlimit(RLIMIT_AS, &r) == 0);
    check("read", getrlimit(RLIMIT_AS, &old) == 0 && is(&old, 200ul << 20, 300ul << 20));
    check("set again", prlimit(0, RLIMIT_AS, &lower, &old) == 0 && is(&old, 200ul << 20, 300ul << 20));
    check("read again", prlimit(0, RLIMIT_AS, 0, &old) == 0 && is(&old, 150ul << 20, 200ul << 20));
    check("soft above hard", setrlimit(RLIMIT_AS, &(struct rlimit){2, 1}) < 0 && errno == EINVAL);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(getrlimit(RLIMIT_AS, &old) == 0 && is(&old, 150ul << 20, 200ul << 20) ? 3 : 4);
    check("a child", waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
    void *p = mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check("64 MiB fits", p != MAP_FAILED);
    void *q = mmap(0, 8ul << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check("8 GiB does not", q == MAP_FAILED && errno == ENOMEM);
    check("malloc says so too", !malloc(8ul << 30) && errno == ENOMEM);
    check("a small one works", malloc(1000) != 0);
    return done();
}
