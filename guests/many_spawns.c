/* So many children one after the other, as a build has: copies, and programs that a copy of no memory starts. */
#include "guest.h"
#include <dirent.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static int descriptors(void) {
    DIR *all = opendir("/proc/self/fd");
    need("/proc/self/fd", all != NULL);
    int n = 0;
    while (readdir(all)) n++;
    closedir(all);
    return n;
}

int main(int argc, char **argv) {
    const int times = argc > 1 ? atoi(argv[1]) : 50;
    int before = descriptors(), right = 0, status;
    char *const args[] = {"true", NULL};
    for (int i = 0; i < times; i++) {
        pid_t pid = -1;
        if (i % 4 == 0) {
            need("posix_spawn", posix_spawn(&pid, "/bin/true", NULL, NULL, args, environ) == 0);
        } else if ((pid = fork()) == 0) {
            _exit(0);
        }
        right += waitpid(pid, &status, 0) == pid && status == 0;
    }
    check("each was waited for", right == times);
    check("no descriptor is left", descriptors() == before);
    check("no child is left", waitpid(-1, &status, 0) == -1 && errno == ECHILD);
    return done();
}
