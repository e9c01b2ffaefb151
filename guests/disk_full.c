/* A full disk: write(2) fails at once, stdio when it flushes. Standard output may be /dev/full as well. */
#include "guest.h"

int main(void) {
    int fd = open("/dev/full", O_WRONLY);
    fprintf(stderr, "write says ENOSPC: %d\n", write(fd, "x", 1) == -1 && errno == ENOSPC);
    FILE *f = fdopen(fd, "w");
    fprintf(stderr, "stdio accepts: %d\n", fputs("buffered", f) >= 0);
    int rc = fflush(f);
    fprintf(stderr, "flush fails: %d %s\n", rc, strerror(errno));
    puts("hello");
    rc = fflush(stdout);
    fprintf(stderr, "standard output: %d\n", rc);
    return rc ? 3 : 0;
}
