/* A pipe with nobody left to read: EPIPE when SIGPIPE is ignored, death by SIGPIPE when not. */
#include "guest.h"

int main(void) {
    int p[2];
    need("pipe", pipe(p) == 0);
    close(p[0]);
    signal(SIGPIPE, SIG_IGN);
    check("EPIPE", write(p[1], "x", 1) == -1 && errno == EPIPE);
    fflush(stdout);
    signal(SIGPIPE, SIG_DFL);
    write(p[1], "x", 1);
    return 1;
}
