/* Children that somebody outside may kill at any moment, from their fork on. The number of the parent goes to the file `number`. */
#include "guest.h"
#include <sys/wait.h>

int main(void) {
    FILE *number = fopen("number", "w");
    need("number", number && fprintf(number, "%d", getpid()) > 0 && fclose(number) == 0);
    usleep(100 * 1000);
    for (int i = 0; i < 100; i++) {
        pid_t pid = fork();
        need("fork", pid >= 0);
        if (pid == 0) {
            usleep(5000);
            _exit(0);
        }
        need("waitpid", waitpid(pid, NULL, 0) == pid);
    }
    return done();
}
