/* What the x87 unit tells of its last instruction: some processors lose it at a switch of tasks, so it is timing. It is stored by fegetenv,
 * fnstenv, fnsave, fxsave and xsave. What else these store is kept. */
#include "guest.h"
#include <fenv.h>
#include <sched.h>

static unsigned char image[1088] __attribute__((aligned(64)));

static void one(void) { __asm__ volatile("fld1\n\tfadds %0\n\tfstp %%st(0)" : : "m"((float){2}) : "st"); }

static void look(void) {
    fenv_t env;
    one();
    sched_yield();
    fegetenv(&env);
    sink(&env, sizeof env);
    one();
    sched_yield();
    __asm__ volatile("fnstenv 12(%0)" : : "r"(image) : "memory");
    sink(image, 64);
    one();
    sched_yield();
    __asm__ volatile("fnsave (%0,%1,2)\n\tfrstor (%0,%1,2)" : : "r"(image), "r"(8l) : "memory");
    sink(image, 128);
    one();
    sched_yield();
    __asm__ volatile("fxsave64 (%0)" : : "r"(image) : "memory");
    sink(image, 512);
    one();
    sched_yield();
    __asm__ volatile("xsave64 (%0)" : : "r"(image), "a"(1), "d"(0) : "memory");
    sink(image, 512);
}

int main(void) {
    unsigned short before, after;
    double three;
    __asm__ volatile("fnstcw %0" : "=m"(before));
    for (int i = 0; i < 60; i++) {
        struct timespec t = {0, 5000 * (i % 20)};
        nanosleep(&t, 0);
        look();
    }
    __asm__ volatile("fld1\n\tfnsave %1\n\tfrstor %1\n\tfadds %2\n\tfstpl %0" : "=m"(three), "=m"(image) : "m"((float){2}) : "memory");
    __asm__ volatile("fnstcw %0" : "=m"(after));
    check("kept", three == 3 && before == after);
    return done();
}
