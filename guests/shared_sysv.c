/* Segments of System V that the program makes, attaches and inherits. With an argument: one more attachment of the same. */
#include "guest.h"
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    struct shmid_ds ds;
    int id = shmget(IPC_PRIVATE, 10000, IPC_CREAT | 0600), status;
    need("shmget", id >= 0);
    int *at = shmat(id, 0, 0);
    need("shmat", at != (void *)-1);
    check("size and attachments", shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_segsz == 10000 && ds.shm_nattch == 1);
    at[2499] = 5;
    fflush(stdout);
    if (argc > 1) {
        (void)argv;
        need("removed", shmctl(id, IPC_RMID, 0) == 0);
        answer("again", shmat(id, 0, SHM_RDONLY) != (void *)-1);
        return done();
    }
    if (fork() == 0) {
        for (int i = 0; i < 1000; i++) at[i] = i * at[2499];
        need("shmdt", shmdt(at) == 0);
        _exit(shmdt(at) == -1 && errno == EINVAL ? 0 : 1);
    }
    check("child", wait(&status) > 0 && status == 0);
    printf("%d\n", at[999]);
    check("removed", shmctl(id, IPC_RMID, 0) == 0);
    check("detached", shmdt(at) == 0);
    check("gone", shmctl(id, IPC_STAT, &ds) == -1 && errno == EINVAL);
    return done();
}
