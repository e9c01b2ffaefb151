/* execve of another program in place of this one. */
#include "guest.h"

int main(void) {
    puts("before");
    fflush(stdout);
    execl("/bin/echo", "echo", "after", (char *)0);
    return 1;
}
