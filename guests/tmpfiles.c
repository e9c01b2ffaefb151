/* Temporary files: mkstemp with its random name, O_TMPFILE given a name later, tmpfile without any. */
#include "guest.h"

int main(void) {
    char a[] = "tmp-XXXXXX", b[] = "tmp-XXXXXX", path[64], r[8] = {0};
    int x = mkstemp(a), y = mkstemp(b);
    check("two files", x >= 0 && y >= 0 && strcmp(a, b));
    sink(a, sizeof a);
    unlink(a), unlink(b);
    int t = open(".", O_TMPFILE | O_RDWR, 0644);
    if (t >= 0) { /* not every file system has it */
        need("write", write(t, "named later", 11) == 11);
        snprintf(path, sizeof path, "/proc/self/fd/%d", t);
        need("linkat", linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW) == 0);
        unlink("named");
    }
    FILE *f = tmpfile();
    check("tmpfile", f && fputs("inside", f) >= 0 && fseek(f, 0, SEEK_SET) == 0 && fgets(r, 8, f) && !strcmp(r, "inside"));
    return done();
}
