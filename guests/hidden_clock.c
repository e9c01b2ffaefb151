/* rdtsc without a jump: in a function that nothing leads to, since its address is computed, and in functions of three bytes.
 * Called by the program, by its child, and by itself once it has become another program. */
#include "guest.h"
#include <sys/wait.h>

__asm__(".pushsection .text\n"
        ".p2align 4\n"
        ".type before_hidden_clock, @object\n"
        "before_hidden_clock: ret\n"
        ".p2align 4\n"
        "rdtsc\n"
        "ret\n"
        ".type tight, @function\n"
        "tight: rdtsc\n"
        "ret\n"
        ".size tight, 3\n"
        ".type tight_too, @function\n"
        "tight_too: rdtscp\n"
        "ret\n"
        ".size tight_too, 4\n"
        ".type behind, @function\n"
        "behind: ret\n"
        ".size behind, 1\n"
        ".popsection");
extern char before_hidden_clock[], tight[], tight_too[];

static uint64_t ticks(const char *clock) {
    unsigned lo, hi;
    __asm__ volatile("call *%2" : "=&a"(lo), "=&d"(hi) : "r"(clock) : "rcx");
    return (uint64_t)hi << 32 | lo;
}

static void in_order(const char *what, const char *clock) {
    uint64_t last = 0, ok = 1;
    for (int i = 0; i < 40; i++) {
        uint64_t now = ticks(clock);
        ok &= now > last, last = now;
        sink(&now, sizeof now);
    }
    uint64_t began = ticks(clock);
    usleep(2000);
    ok &= ticks(clock) - began > 100000; /* of 2 ms: any counter from 50 MHz on */
    check(what, ok);
    fflush(stdout);
}

static void all(void) {
    volatile long behind = 16;
    in_order("a place that is computed", before_hidden_clock + behind);
    in_order("no room", tight);
    in_order("no room for rdtscp", tight_too);
}

int main(int argc, char **argv) {
    int status = 1;
    all();
    if (argc > 1) return done();
    if (fork() == 0) {
        all();
        exit(done());
    }
    check("the child", wait(&status) > 0 && status == 0);
    if (fflush(stdout)) return 98;
    execl("/proc/self/exe", argv[0], "again", (char *)0);
    return 97;
}
