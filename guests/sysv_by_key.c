/* A System V segment that whoever comes first makes: by a key, without IPC_EXCL, and shared with a child. */
#include "guest.h"
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/wait.h>

int main(void) {
    const key_t key = 0x53000000 | (getpid() & 0xffffff);
    int status = -1;
    const int id = shmget(key, 5000, IPC_CREAT | 0600);
    need("shmget", id >= 0);
    check("once more", shmget(key, 5000, IPC_CREAT | 0600) == id && shmget(key, 0, 0) == id);
    check("it is there", shmget(key, 5000, IPC_CREAT | IPC_EXCL | 0600) == -1 && errno == EEXIST);
    check("too long", shmget(key, 50000, IPC_CREAT | 0600) == -1 && errno == EINVAL);
    char *p = shmat(id, 0, 0);
    shmctl(id, IPC_RMID, 0);
    need("shmat", p != (char *)-1);
    check("zeros", p[0] == 0 && p[4999] == 0);
    p[0] = 1;
    pid_t child = fork();
    if (child == 0) {
        p[1] = (char)(p[0] + 1);
        _exit(0);
    }
    check("of a child", waitpid(child, &status, 0) == child && status == 0 && p[1] == 2);
    check("detached", shmdt(p) == 0);
    return done();
}
