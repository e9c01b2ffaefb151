/* One readv of more bytes than any log holds at once: short, as reads of more than the kernel's own limit are, but right. */
#include "guest.h"
#include <sys/uio.h>

int main(void) {
    size_t n = 160u << 20, done_n = 0;
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0600);
    need("file", fd >= 0 && ftruncate(fd, n) == 0 && pwrite(fd, "end", 3, n - 3) == 3);
    char *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    while (done_n < n) {
        struct iovec v[2] = {{p + done_n, (n - done_n) / 2}, {p + done_n + (n - done_n) / 2, n - done_n - (n - done_n) / 2}};
        ssize_t r = readv(fd, v, 2);
        need("readv", r > 0);
        done_n += r;
    }
    check("all", !memcmp(p + n - 3, "end", 3));
    unlink("f");
    return done();
}
