/* As many bytes from the kernel as one call can bring under protection, call after call: 128 MiB from a device, three times,
 * and as many random ones. */
#include "guest.h"
#include <sys/random.h>

enum { BYTES = 128 << 20 };
static unsigned char in[BYTES];

int main(void) {
    int zero = open("/dev/zero", O_RDONLY);
    need("open", zero >= 0);
    for (int i = 0; i < 3; i++) {
        memset(in, 1, BYTES);
        for (size_t at = 0; at < BYTES;) {
            ssize_t n = read(zero, in + at, BYTES - at);
            need("read", n > 0);
            at += n;
        }
        size_t ones = 0;
        for (size_t at = 0; at < BYTES; at++) ones += in[at];
        check("all of it", ones == 0);
    }
    for (size_t at = 0; at < BYTES;) {
        ssize_t n = getrandom(in + at, BYTES - at, 0);
        need("getrandom", n > 0);
        at += n;
    }
    uint32_t sum = digest(in, BYTES);
    sink(&sum, sizeof sum);
    return done();
}
