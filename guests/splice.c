/* Bytes moved inside the kernel: sendfile, copy_file_range, splice and tee, which never pass through the program. */
#include "guest.h"
#include <sys/sendfile.h>

int main(void) {
    char b[64] = {0};
    int p[2], q[2], a = open("from", O_RDWR | O_CREAT | O_TRUNC, 0644), c = open("to", O_RDWR | O_CREAT | O_TRUNC, 0644);
    need("setup", pipe(p) == 0 && pipe(q) == 0 && write(a, "0123456789abcdef", 16) == 16);
    off_t at = 0;
    check("sendfile", sendfile(c, a, &at, 10) == 10 && at == 10);
    loff_t from = 10, to = 10;
    check("copy_file_range", copy_file_range(a, &from, c, &to, 6, 0) == 6);
    from = 0;
    check("splice in", splice(a, &from, p[1], 0, 16, 0) == 16);
    check("tee", tee(p[0], q[1], 16, 0) == 16);
    check("pipe one", read(p[0], b, 64) == 16 && !memcmp(b, "0123456789abcdef", 16));
    check("pipe two", read(q[0], b, 64) == 16 && !memcmp(b, "0123456789abcdef", 16));
    check("target", pread(c, b, 64, 0) == 16 && !memcmp(b, "0123456789abcdef", 16));
    return done();
}
