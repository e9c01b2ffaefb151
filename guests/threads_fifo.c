/* A FIFO is opened by a thread that waits for its other end, which another thread or a child opens later; or for a signal. */
#define _GNU_SOURCE
#include "guest.h"
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char *const name = "threads_fifo.pipe";
static _Atomic int opened, failed_with, is_about_to;
static int flags_of_file, flags_of_number;
static char got[16];

static void *reads(void *flags) {
    is_about_to = 1;
    int fd = open(name, O_RDONLY | (int)(long)flags);
    failed_with = fd < 0 ? errno : 0;
    if (fd < 0) return 0;
    opened = fd;
    long n = read(fd, got, sizeof got - 1);
    got[n > 0 ? n : 0] = 0;
    flags_of_file = fcntl(fd, F_GETFL);
    flags_of_number = fcntl(fd, F_GETFD);
    close(fd);
    return 0;
}

static void *writes(void *unused) {
    (void)unused;
    is_about_to = 1;
    int fd = openat(AT_FDCWD, name, O_WRONLY);
    opened = fd;
    flags_of_file = write(fd, "first", 5) == 5 ? fcntl(fd, F_GETFL) : -1;
    close(fd);
    return 0;
}

/* Others go on meanwhile. */
static pthread_t waits(void *(*what)(void *), long flags) {
    pthread_t thread;
    opened = is_about_to = 0;
    need("pthread_create", pthread_create(&thread, 0, what, (void *)flags) == 0);
    while (!is_about_to) usleep(1000);
    for (int i = 0; i < 10; i++) usleep(1000);
    check("nobody at the other end", !opened);
    return thread;
}

static void handler(int signal) { (void)signal; }

int main(void) {
    unlink(name);
    need("mkfifo", mkfifo(name, 0600) == 0);
    int lowest = dup(0);
    close(lowest);

    pthread_t thread = waits(reads, O_CLOEXEC);
    int fd = open(name, O_WRONLY);
    check("to a reader", write(fd, "hello", 5) == 5);
    pthread_join(thread, 0);
    check("read", !strcmp(got, "hello") && opened <= lowest + 1);
    check("what is read is waited for", (flags_of_file & (O_NONBLOCK | O_ACCMODE)) == O_RDONLY);
    check("its number is closed by exec, as asked for", flags_of_number & FD_CLOEXEC);
    close(fd);

    thread = waits(writes, 0);
    fd = open(name, O_RDONLY);
    check("from a writer", read(fd, got, sizeof got) == 5 && !memcmp(got, "first", 5));
    pthread_join(thread, 0);
    check("room to write is waited for", (flags_of_file & (O_NONBLOCK | O_ACCMODE)) == O_WRONLY);
    close(fd);

    fflush(stdout);
    thread = waits(reads, 0);
    pid_t child = fork();
    if (child == 0) {
        fd = open(name, O_WRONLY);
        _exit(write(fd, "child", 5) != 5);
    }
    int status = -1;
    waitpid(child, &status, 0);
    pthread_join(thread, 0);
    check("a child's", status == 0 && !strcmp(got, "child") && !(flags_of_number & FD_CLOEXEC));

    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler}, 0);
    thread = waits(reads, 0);
    pthread_kill(thread, SIGUSR1);
    pthread_join(thread, 0);
    check("interrupted", failed_with == EINTR);
    check("nobody reads any more", open(name, O_WRONLY | O_NONBLOCK) < 0 && errno == ENXIO);
    unlink(name);
    check("no such name", open(name, O_RDONLY) < 0 && errno == ENOENT);
    fd = dup(0);
    check("none left open", fd == lowest);
    return done();
}
