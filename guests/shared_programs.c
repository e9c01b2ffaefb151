/* Programs that one of them has started share a semaphore and memory by their names: each counts, in turns. One of them makes
 * copies of itself, as a server of forks does. */
#define _GNU_SOURCE
#include "guest.h"
#include <semaphore.h>
#include <spawn.h>
#include <sys/wait.h>

#define ROUNDS 60
extern char **environ;
struct shared { int count, started; sem_t ready; };

static sem_t *turn;
static struct shared *all;

static void map(const char *name, int flags) {
    turn = sem_open(name, flags, 0600, 1);
    need("sem_open", turn != SEM_FAILED);
    int fd = shm_open(name, O_RDWR | flags, 0600);
    need("shm_open", fd >= 0 && (!flags || ftruncate(fd, sizeof *all) == 0));
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need("mmap", all != MAP_FAILED);
    close(fd);
}

static void count(void) {
    for (int i = 0; i < ROUNDS; i++) {
        while (sem_wait(turn) && errno == EINTR) {}
        int seen = all->count;
        if (i % 8 == 0) sched_yield();
        all->count = seen + 1;
        sem_post(turn);
    }
}

static int child(const char *name, int copies) {
    map(name, 0);
    sem_post(&all->ready);
    for (int c = 0; c < copies; c++)
        if (fork() == 0) count(), _exit(0);
    for (int status, left = copies; left; left--) need("wait", wait(&status) > 0 && status == 0);
    count();
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 2) return child(argv[1], atoi(argv[2]));
    char name[64];
    snprintf(name, sizeof name, "/guest-%d", getpid());
    map(name, O_CREAT | O_EXCL);
    check("its own semaphore", sem_init(&all->ready, 1, 0) == 0);
    const char *copies[] = {"0", "2", "0"};
    pid_t pid[3];
    for (int c = 0; c < 3; c++) {
        char *args[] = {argv[0], name, (char *)copies[c], NULL};
        need("posix_spawn", posix_spawn(&pid[c], "/proc/self/exe", NULL, NULL, args, environ) == 0);
    }
    for (int c = 0; c < 3; c++)
        while (sem_wait(&all->ready) && errno == EINTR) {}
    count();
    for (int c = 0; c < 3; c++) {
        int status;
        check("it ended", waitpid(pid[c], &status, 0) == pid[c] && status == 0);
    }
    check("each has counted", all->count == 6 * ROUNDS);
    check("unlinked", sem_unlink(name) == 0 && shm_unlink(name) == 0);
    return done();
}
