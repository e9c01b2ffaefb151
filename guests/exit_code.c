/* Leaves with the status given, by the way given: return, exit, _exit, or the raw call with bits above eight. */
#include "guest.h"

int main(int argc, char **argv) {
    int code = argc > 1 ? atoi(argv[1]) : 0;
    char how = argc > 2 ? argv[2][0] : 'r';
    printf("leaving with %d by %c\n", code, how);
    if (how == 'e') exit(code);
    fflush(stdout);
    if (how == '_') _exit(code);
    if (how == 's') syscall(SYS_exit, 0x100 + code);
    return code;
}
