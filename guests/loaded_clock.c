/* A library that is loaded late holds an rdtsc that nothing leads to; the system's clock goes on as before. */
#include "guest.h"
#include <dlfcn.h>

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000l + t.tv_nsec;
}

int main(int argc, char **argv) {
    volatile long behind = 16;
    need("a library", argc > 1);
    int64_t before = now();
    void *m = dlopen(argv[1], RTLD_NOW);
    if (!m) return fprintf(stderr, "%s\n", dlerror()), 99;
    const char *clock = (const char *)dlsym(m, "before_hidden_clock") + behind;
    uint64_t last = 0, ok = 1;
    for (int i = 0; i < 100; i++) {
        unsigned lo, hi;
        __asm__ volatile("call *%2" : "=&a"(lo), "=&d"(hi) : "r"(clock) : "rcx");
        uint64_t ticks = (uint64_t)hi << 32 | lo;
        ok &= ticks > last, last = ticks;
        sink(&ticks, sizeof ticks);
    }
    check("in order", ok);
    usleep(2000);
    check("and so is time", now() - before >= 2000000);
    return done();
}
