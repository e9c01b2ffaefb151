/* A wait for a word of a file that is mapped shared: woken by a thread, or by another program that has mapped it. */
#include "guest.h"
#include <linux/futex.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static uint32_t *map(int flags) {
    int fd = open("lock", O_RDWR | flags, 0600);
    need("file", fd >= 0 && (!flags || ftruncate(fd, 4096) == 0));
    uint32_t *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need("mmap", at != MAP_FAILED);
    close(fd);
    return at;
}

static void wait_for(uint32_t *word) {
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 1) syscall(SYS_futex, word, FUTEX_WAIT, 1, NULL, NULL, 0);
}

static void let_go(uint32_t *word) {
    __atomic_store_n(word, 0, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void *waits(void *word) {
    wait_for(word);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "child") == 0) {
        wait_for(map(0));
        puts("woken");
        return 0;
    }
    uint32_t *word = map(O_CREAT);
    *word = 1;
    if (argc > 1) {
        pthread_t thread;
        need("thread", pthread_create(&thread, NULL, waits, word) == 0);
        usleep(20000);
        let_go(word);
        pthread_join(thread, NULL);
        puts("joined");
        return 0;
    }
    char *args[] = {argv[0], "child", NULL};
    pid_t pid;
    int status = 0;
    need("spawn", posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ) == 0);
    usleep(300000);
    let_go(word);
    waitpid(pid, &status, 0);
    printf("status %d\n", status);
    return 0;
}
