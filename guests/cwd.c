/* The working directory: chdir, relative opens, fchdir, openat, and getcwd of a removed directory. */
#include "guest.h"

int main(void) {
    char b[4096], *base;
    int top = open(".", O_RDONLY | O_DIRECTORY);
    mkdir("one", 0755), mkdir("one/two", 0755), mkdir("gone", 0755);
    check("chdir", chdir("one/two") == 0);
    base = getcwd(b, sizeof b);
    check("getcwd", base && !strcmp(strrchr(base, '/'), "/two"));
    int fd = open("file", O_CREAT | O_WRONLY, 0644);
    check("relative open", fd >= 0 && write(fd, "here", 4) == 4);
    check("dotdot", access("../two/file", R_OK) == 0);
    check("openat", openat(top, "one/two/file", O_RDONLY) >= 0);
    check("fchdir", fchdir(top) == 0 && access("one/two/file", R_OK) == 0);
    check("into gone", chdir("gone") == 0 && rmdir("../gone") == 0);
    check("getcwd fails", !getcwd(b, sizeof b) && errno == ENOENT);
    check("no such directory", chdir("nowhere") == -1 && errno == ENOENT);
    return done();
}
