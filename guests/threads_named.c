/* Names of threads (prctl(2), PR_SET_NAME): each has its own and begins with that of who made it; the first one's is the process's. A
 * child of fork has the name of the thread that made it. */
#include "guest.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static void show(const char *who) {
    char name[16];
    need("prctl", prctl(PR_GET_NAME, name) == 0);
    printf("%s: %s\n", who, name);
    fflush(stdout);
}

static void *inner(void *p) {
    show("made by the worker");
    return p;
}

static void *worker(void *p) {
    pthread_t t;
    int status;
    show("worker at first");
    prctl(PR_SET_NAME, "a name of more than fifteen bytes");
    show("worker");
    need("inner", pthread_create(&t, 0, inner, 0) == 0 && pthread_join(t, 0) == 0);
    pid_t child = fork();
    if (child == 0) {
        show("child");
        prctl(PR_SET_NAME, "child");
        show("child");
        _exit(0);
    }
    check("child", waitpid(child, &status, 0) == child && status == 0);
    check("an address of nobody", prctl(PR_SET_NAME, 8) == -1 && errno == EFAULT && prctl(PR_GET_NAME, 8) == -1 && errno == EFAULT);
    show("worker at last");
    return p;
}

int main(void) {
    pthread_t t;
    char name[16] = "";
    prctl(PR_SET_NAME, "first");
    need("worker", pthread_create(&t, 0, worker, 0) == 0 && pthread_join(t, 0) == 0);
    show("the first");
    int fd = open("/proc/self/comm", O_RDONLY);
    check("the process", fd >= 0 && read(fd, name, sizeof name) == 6 && !memcmp(name, "first\n", 6));
    return done();
}
