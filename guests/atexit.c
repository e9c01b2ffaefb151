/* Constructors, destructors, atexit in reverse order, thread-local data, output from all of them. */
#include "guest.h"

static __thread int tls = 11;
__attribute__((constructor)) static void before(void) { puts("constructor"); tls++; }
__attribute__((destructor)) static void after(void) { printf("destructor %d\n", tls); }
static void one(void) { puts("one"); }
static void two(void) { puts("two"); tls++; }

int main(void) {
    atexit(one), atexit(two);
    printf("main %d\n", tls);
    exit(9);
}
