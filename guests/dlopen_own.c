/* dlopen of an own library that holds raw system calls and rdtsc, loaded, called, unloaded and loaded again. */
#include "guest.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    for (int i = 0; i < 3; i++) {
        void *m = dlopen(argc > 1 ? argv[1] : "./plugin.so", RTLD_NOW);
        if (!m) return fprintf(stderr, "%s\n", dlerror()), 99;
        int (*say)(int) = (int (*)(int))dlsym(m, "plugin_say");
        int (*clock_ok)(void) = (int (*)(void))dlsym(m, "plugin_clock");
        check("said", say(i) == 7);
        check("clock in order", clock_ok());
        fflush(stdout);
        check("unloaded", dlclose(m) == 0);
    }
    return done();
}
