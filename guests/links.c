/* Names: hard links, symbolic links, rename over a file, RENAME_EXCHANGE, unlink of an open file. */
#include "guest.h"

int main(void) {
    struct stat a, b;
    char t[64] = {0};
    int fd = open("a", O_RDWR | O_CREAT | O_TRUNC, 0644);
    need("write", write(fd, "content", 7) == 7);
    check("link", link("a", "hard") == 0 && !stat("a", &a) && !stat("hard", &b) && a.st_ino == b.st_ino && a.st_nlink == 2);
    check("symlink", symlink("a", "soft") == 0 && readlink("soft", t, sizeof t) == 1 && t[0] == 'a');
    check("lstat against stat", !lstat("soft", &b) && S_ISLNK(b.st_mode) && !stat("soft", &b) && b.st_ino == a.st_ino);
    close(open("c", O_CREAT | O_WRONLY, 0644));
    check("rename over", rename("hard", "c") == 0 && !stat("c", &b) && b.st_ino == a.st_ino);
    check("rename of two names of one file", rename("a", "c") == 0 && access("a", F_OK) == 0);
    check("exchange", renameat2(AT_FDCWD, "soft", AT_FDCWD, "c", RENAME_EXCHANGE) == 0);
    check("refuses to replace", renameat2(AT_FDCWD, "soft", AT_FDCWD, "c", RENAME_NOREPLACE) == -1 && errno == EEXIST);
    check("unlink", unlink("a") == 0 && unlink("soft") == 0 && fstat(fd, &a) == 0 && a.st_nlink == 0);
    check("still readable", pread(fd, t, 7, 0) == 7 && !memcmp(t, "content", 7));
    check("dangling", open("c", O_RDONLY) == -1 && errno == ENOENT);
    return done();
}
