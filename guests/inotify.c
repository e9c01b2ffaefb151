/* inotify: a watch on a directory reports create, modify, rename with one cookie, delete. */
#include "guest.h"
#include <sys/inotify.h>

int main(void) {
    mkdir("w", 0755);
    int in = inotify_init1(IN_NONBLOCK), wd = inotify_add_watch(in, "w", IN_CREATE | IN_MODIFY | IN_MOVE | IN_DELETE);
    check("watch", wd > 0);
    int fd = open("w/x", O_CREAT | O_WRONLY, 0644);
    need("write", write(fd, "1", 1) == 1);
    rename("w/x", "w/y");
    unlink("w/y");
    char b[4096] __attribute__((aligned(8)));
    ssize_t n = read(in, b, sizeof b);
    uint32_t cookie = 0;
    for (char *p = b; p < b + n;) {
        struct inotify_event *e = (void *)p;
        printf("%s %x\n", e->name, e->mask);
        if (e->mask & IN_MOVED_FROM) cookie = e->cookie;
        if (e->mask & IN_MOVED_TO) check("one cookie", cookie && cookie == e->cookie);
        p += sizeof *e + e->len;
    }
    check("no more", read(in, b, sizeof b) == -1 && errno == EAGAIN);
    return done();
}
