/* A program started by root that becomes an ordinary user, and then forks; its child maps a file. */
#include "guest.h"
#include <grp.h>
#include <sys/wait.h>

int main(void) {
    int status;
    if (getuid() == 0) {
        need("group", setgroups(0, 0) == 0 && setresgid(65534, 65534, 65534) == 0);
        need("user", setresuid(65534, 65534, 65534) == 0);
    }
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", shared != MAP_FAILED);
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            *shared += i + 1;
            _exit(4);
        } else {
            need("wait", wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 4);
        }
    printf("%d\n", *shared);
    return 0;
}
