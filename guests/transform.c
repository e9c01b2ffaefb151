/* Read, transform, write: rot13 of standard input in blocks of an odd size. */
#include "guest.h"

int main(void) {
    char b[777];
    ssize_t n;
    size_t total = 0;
    while ((n = read(0, b, sizeof b)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            char c = b[i] | 32;
            if (c >= 'a' && c <= 'z') b[i] += c < 'n' ? 13 : -13;
        }
        for (ssize_t at = 0, w; at < n; at += w)
            if ((w = write(1, b + at, n - at)) <= 0) return 1;
        total += n;
    }
    fprintf(stderr, "%zu bytes\n", total);
    return n < 0;
}
