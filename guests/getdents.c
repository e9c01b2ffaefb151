/* A directory of 300 files: order is the file system's, so names are sorted; rewinddir, telldir and seekdir. */
#include "guest.h"
#include <dirent.h>

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }
static int all(const struct dirent *d) { return d->d_name[0] != '.'; }

int main(void) {
    char name[32];
    need("mkdir", mkdir("d", 0755) == 0);
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "d/file-%03d", i * 7 % 300);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    struct dirent **list, *e;
    int n = scandir("d", &list, all, by_name);
    for (int i = 0; i < n; i += 37) puts(list[i]->d_name);
    printf("%d names\n", n);
    DIR *d = opendir("d");
    readdir(d);
    long mark = telldir(d);
    e = readdir(d);
    char second[256];
    strcpy(second, e->d_name);
    while ((e = readdir(d))) sink(e->d_name, strlen(e->d_name)); /* in the order that the file system has */
    seekdir(d, mark);
    check("seekdir comes back", !strcmp(readdir(d)->d_name, second));
    rewinddir(d);
    check("rewinddir", readdir(d) != 0);
    return done();
}
