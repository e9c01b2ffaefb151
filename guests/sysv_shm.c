/* System V shared memory that nobody else attaches, and what ipcs asks about all segments. */
#define _GNU_SOURCE
#include "guest.h"
#include <sys/shm.h>

int main(void) {
    int id = shmget(IPC_PRIVATE, 8192, 0600);
    puts("before");
    fflush(stdout);
    char *p = shmat(id < 0 ? 0 : id, 0, 0);
    struct shminfo limits = {0};
    struct shm_info all = {0};
    struct shmid_ds one;
    int top = shmctl(0, IPC_INFO, (void *)&limits), last = shmctl(0, SHM_INFO, (void *)&all), found = 0;
    check("limits", top >= 0 && limits.shmmni > 0 && last >= 0 && all.used_ids > 0);
    for (int i = 0; i <= last; i++) found |= shmctl(i, SHM_STAT, &one) == id;
    check("found", found && shmctl(0, 999, 0) == -1 && errno == EINVAL);
    answer("attached", p != (void *)-1);
    if (id >= 0) shmctl(id, IPC_RMID, 0);
    return done();
}
