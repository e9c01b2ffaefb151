/* Memory that processes share by a name: made before a fork, made after it and found by its name, and a named semaphore.
 * With "drop" the program gives up its rights in between, as squid does. */
#include "guest.h"
#include <grp.h>
#include <semaphore.h>
#include <sys/wait.h>

enum { ROUNDS = 300 };

struct shared {
    long sum, order;
    char text[64];
};

static char name[2][64];

static struct shared *map(const char *path, int flags) {
    int fd = shm_open(path, flags | O_RDWR, 0600);
    need("shm_open", fd >= 0);
    if (flags & O_CREAT)
        need("ftruncate", ftruncate(fd, 3 * 4096) == 0);
    struct shared *s = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need("mmap", s != MAP_FAILED);
    close(fd);
    return s;
}

static void work(struct shared *s, sem_t *sem, int id) {
    for (int i = 0; i < ROUNDS; i++) {
        need("sem_wait", sem_wait(sem) == 0);
        s->sum += id;
        s->order = s->order * 31 + id;
        sem_post(sem);
    }
}

/* Where tests let a fault strike. */
__attribute__((noinline)) static void report(struct shared *s) {
    printf("sum %ld, %s\n", s->sum, s->text);
}

/* Made by another program. */
static int attach_elsewhere(const char *self) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        execl(self, self, "make", name[0], (char *)NULL);
        _exit(127);
    }
    need("wait", waitpid(pid, &status, 0) == pid && status == 0);
    int fd = shm_open(name[0], O_RDWR, 0);
    need("shm_open", fd >= 0 && shm_unlink(name[0]) == 0);
    need("mmap", mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
    puts("attached");
    return 0;
}

int main(int argc, char **argv) {
    int pipe_of[2], status;
    char c;
    if (argc == 3) {
        map(argv[2], O_CREAT | O_EXCL)->sum = 7;
        return 0;
    }
    snprintf(name[0], sizeof name[0], "/guest-named-%d-a", getpid());
    snprintf(name[1], sizeof name[1], "/guest-named-%d-b", getpid());
    puts("before");
    fflush(stdout);
    int drop = argc == 2 && strcmp(argv[1], "drop") == 0;
    if (argc == 2 && !drop)
        return attach_elsewhere(argv[0]);
    struct shared *early = map(name[0], O_CREAT | O_EXCL), *late;
    strcpy(early->text, "from before the fork");
    if (drop && getuid() == 0) {
        need("owner", chdir("/dev/shm") == 0 && chown(name[0] + 1, 65534, 65534) == 0);
        need("group", setgroups(0, 0) == 0 && setresgid(65534, 65534, 65534) == 0);
        need("user", setresuid(65534, 65534, 65534) == 0);
    }
    need("pipe", pipe(pipe_of) == 0);
    if (fork() == 0) {
        need("read", read(pipe_of[0], &c, 1) == 1);
        late = map(name[1], 0);
        sem_t *sem = sem_open(name[1], 0);
        need("sem_open", sem != SEM_FAILED);
        need("seen", strcmp(late->text, "from after it") == 0);
        strcat(early->text, ", seen by the child");
        work(late, sem, 3);
        _exit(0);
    }
    late = map(name[1], O_CREAT | O_EXCL);
    strcpy(late->text, "from after it");
    sem_t *sem = sem_open(name[1], O_CREAT | O_EXCL, 0600, 1);
    need("sem_open", sem != SEM_FAILED);
    need("write", write(pipe_of[1], "x", 1) == 1);
    work(late, sem, 5);
    need("wait", wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    need("unlink", shm_unlink(name[0]) == 0 && shm_unlink(name[1]) == 0 && sem_unlink(name[1]) == 0);
    report(late);
    puts(early->text);
    sink(&late->order, sizeof late->order);
    return 0;
}
