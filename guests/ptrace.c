/* ptrace: a program that asks to be traced by its parent. */
#include "guest.h"
#include <sys/ptrace.h>

int main(void) {
    puts("before");
    fflush(stdout);
    answer("traceme", ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
    return done();
}
