/* As steady.c, by a program that root starts and that becomes an ordinary user first: whatever happens to a replica
 * afterwards happens without the rights it was started with. With "caps" it keeps its user and drops its capabilities. */
#include "guest.h"
#include <grp.h>
#include <linux/capability.h>

static inline __attribute__((always_inline)) uint64_t through(uint64_t x) {
    uint64_t dead = 0;
    __asm__ volatile(".globl flip_here\n.type flip_here, @function\nflip_here: .byte 0x0f, 0x1f, 0x44, 0, 0" : "+a"(x), "+d"(dead));
    return x;
}

static void drop(int caps) {
    if (getuid()) return;
    if (caps) {
        struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct d[2] = {{0, 0, 0}, {0, 0, 0}};
        need("capset", syscall(SYS_capset, &h, d) == 0);
        return;
    }
    need("groups", setgroups(0, 0) == 0);
    need("group", setresgid(65534, 65534, 65534) == 0);
    need("user", setresuid(65534, 65534, 65534) == 0);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 30;
    static uint64_t state[4096];
    drop(argc > 2 && !strcmp(argv[2], "caps"));
    if (write(1, "ready\n", 6) != 6) return 1;
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < 4096; i++) state[i] = through(state[i] * 6364136223846793005u + r + i);
        char line[64];
        int n = snprintf(line, sizeof line, "round %d %016lx %d\n", r, digest(state, sizeof state), getuid() != 0);
        if (write(1, line, n) != n) return 1;
    }
    return 0;
}
