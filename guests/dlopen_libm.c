/* dlopen of a library of the system, after start: symbols, a call through them, RTLD_NOLOAD, dlclose, a missing one. */
#include "guest.h"
#include <dlfcn.h>

int main(void) {
    void *m = dlopen("libm.so.6", RTLD_NOW);
    need("libm", m != 0);
    double (*cosine)(double) = (double (*)(double))dlsym(m, "cos");
    printf("%.12f\n", cosine(1.0));
    check("loaded", dlopen("libm.so.6", RTLD_NOW | RTLD_NOLOAD) == m);
    check("no symbol", !dlsym(m, "no_such_symbol"));
    check("close", dlclose(m) == 0);
    check("no library", !dlopen("libnone-such.so", RTLD_LAZY));
    Dl_info i;
    check("dladdr", dladdr((void *)main, &i) != 0);
    sink(&i, sizeof i);
    return done();
}
