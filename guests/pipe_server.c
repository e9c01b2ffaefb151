/* Answers each line of standard input at once, until "quit": output must not wait for more input. */
#include "guest.h"

int main(void) {
    char line[256];
    int n = 0;
    while (fgets(line, sizeof line, stdin) && strcmp(line, "quit\n")) printf("%d: %s", ++n, line), fflush(stdout);
    printf("bye after %d\n", n);
    return done();
}
