/* Paths that lie in memory of several processes: files are opened by them, as a load generator does whose jobs have their state
 * there. */
#include "guest.h"
#include <sys/wait.h>

int main(void) {
    char *path = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", path != MAP_FAILED);
    pid_t child = fork();
    need("fork", child >= 0);
    strcpy(path + 64 * (child != 0), child ? "of_the_parent" : "of_the_child");
    const char *own = path + 64 * (child != 0);
    for (int i = 0; i < 50; i++) {
        int fd = open(own, O_RDWR | O_CREAT | O_APPEND, 0600);
        need("open", fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
    }
    struct stat st;
    int whole = stat(own, &st) == 0 && st.st_size == 50 && open("no such file", O_RDONLY) == -1 && errno == ENOENT;
    if (!child) _exit(unlink(own) || !whole);
    int status;
    check("the parent's file", whole && unlink(own) == 0);
    check("the child's file", waitpid(child, &status, 0) == child && status == 0);
    return done();
}
