/* A handler ends a loop that makes no call and looks at a variable only: by a timer, by an alarm inside the handler of
 * another signal, and one that leaves by siglongjmp. */
#include "guest.h"
#include <setjmp.h>
#include <sys/time.h>

static volatile sig_atomic_t ticks, rang;
static sigjmp_buf out;

static void tick(int s) { (void)s; ticks++; }
static void rings(int s) { (void)s; rang = 1; }
static void leaves(int s) { (void)s; siglongjmp(out, 1); }

int main(void) {
    struct itimerval every = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, tick);
    need("setitimer", setitimer(ITIMER_REAL, &every, 0) == 0);
    while (ticks < 3);
    need("setitimer", setitimer(ITIMER_REAL, &never, 0) == 0);
    check("ticks", ticks >= 3);

    signal(SIGALRM, rings);
    alarm(1);
    __asm__ volatile("1: cmpl $0, %0; je 1b" ::"m"(rang) : "cc");
    check("rang", rang == 1);

    signal(SIGALRM, leaves);
    if (!sigsetjmp(out, 1)) {
        alarm(1);
        __asm__ volatile("1: jmp 1b");
    }
    check("left", 1);
    return done();
}
