/* Many small writes: 200 lines, each its own system call. */
#include "guest.h"

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 200;
    char line[64];
    for (int i = 0; i < n; i++) {
        int len = snprintf(line, sizeof line, "line %d of %d, square %d\n", i, n, i * i);
        if (write(1, line, len) != len) return 1;
    }
    return 0;
}
