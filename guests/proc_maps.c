/* /proc/self/maps: the program finds its text, data, heap and stack where it uses them, with the right permissions. */
#include "guest.h"

static int data = 1;

static int at(const void *p, const char *perms) {
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512], r[8];
    uintptr_t lo, hi;
    int found = 0;
    need("maps", f != 0);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%lx-%lx %7s", &lo, &hi, r) == 3 && (uintptr_t)p >= lo && (uintptr_t)p < hi) found = !strcmp(r, perms);
    fclose(f);
    return found;
}

int main(void) {
    int local;
    char *none = mmap(0, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check("text", at((void *)main, "r-xp"));
    check("data", at(&data, "rw-p"));
    check("stack", at(&local, "rw-p"));
    check("heap", at(malloc(100), "rw-p"));
    check("own mapping", at(none, "---p"));
    munmap(none, 8192);
    check("unmapped", !at(none, "---p"));
    return done();
}
