/* System V message queues and semaphores, private to the process. */
#include "guest.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

int main(int argc, char **argv) {
    if (argc > 1) { /* all values of a set at once */
        unsigned short all[2] = {1, 2};
        int set = semget(IPC_PRIVATE, 2, 0600);
        check(argv[1], semctl(set, 0, SETALL, all) == 0 && semctl(set, 0, GETALL, all) == 0 && all[1] == 2);
        check("removed", semctl(set, 0, IPC_RMID) == 0);
        return done();
    }
    struct { long type; char text[32]; } m = {3, "message"}, r = {0};
    int q = msgget(IPC_PRIVATE, 0600), s = semget(IPC_PRIVATE, 1, 0600);
    sink(&q, sizeof q);
    check("queue", q >= 0 && msgsnd(q, &m, 8, 0) == 0 && msgrcv(q, &r, 32, 3, 0) == 8 && !strcmp(r.text, "message"));
    check("empty", msgrcv(q, &r, 32, 0, IPC_NOWAIT) == -1 && errno == ENOMSG);
    check("removed", msgctl(q, IPC_RMID, 0) == 0);
    struct sembuf up = {0, 2, 0}, down = {0, -3, IPC_NOWAIT};
    check("semaphore", semop(s, &up, 1) == 0 && semop(s, &down, 1) == -1 && errno == EAGAIN && semctl(s, 0, GETVAL) == 2);
    check("removed too", semctl(s, 0, IPC_RMID) == 0);
    return done();
}
