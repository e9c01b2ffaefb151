/* Standard output and standard error written in turns, buffered and not, with data left in the buffer at exit. */
#include "guest.h"

int main(void) {
    setvbuf(stdout, 0, _IOFBF, 100);
    for (int i = 0; i < 20; i++) {
        printf("out %d ", i);
        fprintf(stderr, "err %d\n", i);
        if (i % 7 == 0) fflush(stdout);
    }
    FILE *f = fopen("log", "w+");
    fprintf(f, "%5.2f|%-8s|%08x\n", 3.14159, "left", 0xbeef);
    rewind(f);
    char line[64];
    check("read back", fgets(line, sizeof line, f) != 0);
    fputs(line, stdout);
    fputs("left in the buffer", f);
    return done();
}
