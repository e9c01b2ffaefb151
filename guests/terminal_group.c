/* As a shell with job control does: a child's process group gets the terminal. Then a command of ioctl that no kernel has. */
#include "guest.h"
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

int main(void) {
    signal(SIGTTOU, SIG_IGN);
    pid_t child = fork();
    if (child == 0) {
        pause();
        return 1;
    }
    need("group", setpgid(child, child) == 0);
    need("terminal", tcsetpgrp(0, child) == 0 && tcgetpgrp(0) == child);
    puts("the child's");
    fflush(stdout);
    ioctl(0, 0x5fe1);
    kill(child, SIGKILL);
    return 0;
}
