/* A worker counts in memory that it shares with its parent, and may be killed meanwhile. Its number goes to the file `number`. */
#include "guest.h"
#include <sys/wait.h>

enum { ROUNDS = 500 };

static void work(volatile long *count) {
    FILE *number = fopen("number", "w");
    need("number", number && fprintf(number, "%d", getpid()) > 0 && fclose(number) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < 20000; k++) ++*count;
        usleep(4000);
    }
    _exit(3);
}

int main(void) {
    volatile long *count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", count != MAP_FAILED);
    pid_t pid = fork();
    need("fork", pid >= 0);
    if (pid == 0) work(count);
    int status, sees = 1;
    for (long last = 0; waitpid(pid, &status, WNOHANG) == 0; usleep(20000)) {
        sees &= *count >= last && *count <= ROUNDS * 20000L;
        last = *count;
    }
    check("it ended by itself", WIFEXITED(status) && WEXITSTATUS(status) == 3);
    check("seen to count", sees && *count == ROUNDS * 20000L);
    return done();
}
