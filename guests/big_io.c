/* Single transfers of 8 MiB: to a file, back from it, and to standard output. */
#include "guest.h"

enum { BYTES = 8 << 20 };
static unsigned char out[BYTES], in[BYTES];

int main(void) {
    uint32_t x = 1;
    for (size_t i = 0; i < BYTES; i++) out[i] = (x = x * 1664525 + 1013904223) >> 24;
    int fd = open("big", O_RDWR | O_CREAT | O_TRUNC, 0644);
    need("open", fd >= 0);
    int wrote = write(fd, out, BYTES) == BYTES;
    lseek(fd, 0, SEEK_SET);
    int back = read(fd, in, BYTES) == BYTES && !memcmp(in, out, BYTES);
    int end = read(fd, in, BYTES) == 0;
    for (size_t at = 0; at < BYTES;) {
        ssize_t w = write(1, out + at, BYTES - at);
        need("write", w > 0);
        at += w;
    }
    dup2(2, 1);
    check("written in one call", wrote);
    check("read back in one call", back);
    check("then end of file", end);
    return done();
}
