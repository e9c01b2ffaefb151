/* System V shared memory that nobody else attaches. */
#include "guest.h"
#include <sys/shm.h>

int main(void) {
    int id = shmget(IPC_PRIVATE, 8192, 0600);
    puts("before");
    fflush(stdout);
    char *p = shmat(id < 0 ? 0 : id, 0, 0);
    answer("attached", p != (void *)-1);
    if (id >= 0) shmctl(id, IPC_RMID, 0);
    return done();
}
