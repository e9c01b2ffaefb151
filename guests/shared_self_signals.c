/* Processes that share memory, and end or stop by a signal of their own: to themselves, to their group, by an alarm while they
 * compute. The others go on. */
#include "guest.h"
#include <sys/wait.h>

static volatile int *shared;

static void ends(int how) {
    int ends_of[2];
    char c;
    setpgid(0, 0);
    shared[how]++;
    switch (how) {
    case 0: kill(getpid(), SIGKILL); break;
    case 1: raise(SIGKILL); break;
    case 2:
        need("pipe", pipe(ends_of) == 0);
        if (fork() == 0) {
            need("write", write(ends_of[1], "", 1) == 1);
            pause();
        }
        need("read", read(ends_of[0], &c, 1) == 1);
        usleep(50000); /* it is killed while it waits */
        kill(0, SIGKILL);
        break;
    case 3:
        kill(getpid(), SIGSTOP);
        shared[how]++;
        raise(SIGTSTP);
        shared[how]++;
        _exit(3);
    default:
        alarm(1);
        for (;;) shared[7]++;
    }
    pause();
}

int main(void) {
    int status[5];
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("memory", shared != MAP_FAILED);
    for (int how = 0; how < 5; how++) {
        pid_t child = fork();
        if (child == 0) ends(how);
        waitpid(child, &status[how], WUNTRACED);
        for (; WIFSTOPPED(status[how]); waitpid(child, &status[how], WUNTRACED)) {
            shared[6] += shared[how];
            kill(child, SIGCONT);
        }
        printf("%d: %x, stored %d\n", how, status[how], shared[how]);
    }
    check("ended", WTERMSIG(status[0]) == SIGKILL && WTERMSIG(status[1]) == SIGKILL && WTERMSIG(status[2]) == SIGKILL);
    check("stopped twice", WEXITSTATUS(status[3]) == 3 && shared[3] == 3 && shared[6] == 3);
    check("by its alarm", WTERMSIG(status[4]) == SIGALRM);
    return done();
}
