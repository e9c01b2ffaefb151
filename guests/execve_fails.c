/* execve that fails returns: no such file, no permission, not a program. */
#include "guest.h"

int main(void) {
    puts("before");
    fflush(stdout);
    check("missing", execl("/no/such/program", "x", (char *)0) == -1 && errno == ENOENT);
    close(open("plain", O_CREAT | O_WRONLY, 0644));
    check("not executable", execl("./plain", "x", (char *)0) == -1 && errno == EACCES);
    return done();
}
