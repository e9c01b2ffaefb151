/* Semaphores with a name whose file nobody may open again, not even its owner, shared with a child. */
#include "guest.h"
#include <semaphore.h>
#include <sys/wait.h>

static sem_t *made(const char *what) {
    char name[64];
    snprintf(name, sizeof name, "/guest-%s-%d", what, getpid());
    sem_t *sem = sem_open(name, O_CREAT | O_EXCL, 0, 0);
    need("sem_open", sem != SEM_FAILED);
    need("sem_unlink", what[0] == 'n' || sem_unlink(name) == 0);
    return sem;
}

int main(void) {
    char name[64];
    int status = -1;
    sem_t *named = made("named"), *without = made("gone");
    pid_t child = fork();
    if (child == 0) _exit(sem_post(named) | sem_post(without));
    snprintf(name, sizeof name, "/guest-named-%d", getpid());
    check("posted by a child", sem_wait(named) == 0 && sem_wait(without) == 0);
    check("it has ended", waitpid(child, &status, 0) == child && status == 0);
    check("unlinked", sem_unlink(name) == 0);
    return done();
}
