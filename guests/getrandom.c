/* Random bytes: getrandom, getentropy, /dev/urandom differ from each other; their digest is equal when taken twice. */
#include "guest.h"
#include <sys/random.h>

int main(void) {
    unsigned char a[256], b[256], c[256], d[100000];
    check("getrandom", getrandom(a, sizeof a, 0) == 256 && getrandom(b, sizeof b, GRND_NONBLOCK) == 256);
    check("getentropy", getentropy(c, 256) == 0);
    check("differ", memcmp(a, b, 256) && memcmp(a, c, 256));
    int fd = open("/dev/urandom", O_RDONLY);
    check("urandom", read(fd, d, sizeof d) == sizeof d);
    uint64_t once = digest(d, sizeof d), out = open("bytes", O_RDWR | O_CREAT | O_TRUNC, 0600);
    need("file", write(out, d, sizeof d) == sizeof d);
    memset(d, 0, sizeof d);
    need("back", pread(out, d, sizeof d, 0) == sizeof d);
    unlink("bytes");
    check("digest twice", digest(d, sizeof d) == once);
    sink(a, 256), sink(d, sizeof d);
    check("bad flag", getrandom(a, 1, 0x100) == -1 && errno == EINVAL);
    return done();
}
