/* An option that no table knows, of prctl, arch_prctl or fcntl as named: bare, EINVAL. */
#include "guest.h"

int main(int argc, char **argv) {
    char how = argc > 1 ? argv[1][0] : 'p';
    puts("before");
    fflush(stdout);
    long rc = how == 'p' ? syscall(SYS_prctl, 987654321, 0, 0, 0, 0) : how == 'a' ? syscall(SYS_arch_prctl, 0x9999, 0) : fcntl(1, 9999, 0);
    check("EINVAL", rc == -1 && errno == EINVAL);
    return done();
}
