/* A child of vfork(2) that sleeps before it becomes another program, or before it has a descriptor of its own and does. */
#include "guest.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

int main(int argc, char **argv)
{
    const struct timespec second = {1, 0};
    char number[16];
    int status, file = open("number", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    int length = snprintf(number, sizeof number, "%d\n", getpid());
    need("write", write(file, number, length) == length);
    close(file);
    pid_t child = vfork();
    if (child == 0) {
        if (argc > 1 && !strcmp(argv[1], "redirected")) dup2(2, 1);
        nanosleep(&second, 0);
        execl("/bin/echo", "echo", "the child", (char *)0);
        _exit(1);
    }
    need("vfork", child > 0);
    need("waitpid", waitpid(child, &status, 0) == child);
    printf("it ended with %d\n", WEXITSTATUS(status));
    return 0;
}
