/* What the kernel knows of a thread: the word that is cleared at its end, and its list of robust locks (set_tid_address(2),
 * get_robust_list(2)). Who takes the word away and puts it back is joined. A child of fork(2) has its own. */
#include "guest.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

struct head {
    void *next;
};

static void *look(void *who) {
    int *word = 0, *none = (int *)who;
    struct head *head = 0, *same = 0;
    size_t bytes = 0;
    int tid = (int)syscall(SYS_gettid);
    printf("%s\n", (const char *)who);
    check("its word", prctl(PR_GET_TID_ADDRESS, &word) == 0 && word && *word == tid);
    check("its list", syscall(SYS_get_robust_list, 0, &head, &bytes) == 0 && bytes == 24 && head && head->next == head);
    check("by its number", syscall(SYS_get_robust_list, tid, &same, &bytes) == 0 && same == head);
    check("nowhere", prctl(PR_GET_TID_ADDRESS, 8) == -1 && errno == EFAULT);
    check("the list nowhere", syscall(SYS_get_robust_list, 0, 8, &bytes) == -1 && errno == EFAULT);
    check("taken away", syscall(SYS_set_tid_address, 0) == tid && prctl(PR_GET_TID_ADDRESS, &none) == 0 && !none);
    check("put back", syscall(SYS_set_tid_address, word) == tid && prctl(PR_GET_TID_ADDRESS, &none) == 0 && none == word);
    return who;
}

int main(void) {
    pthread_t t;
    int status = -1;
    look("the first");
    need("pthread_create", pthread_create(&t, 0, look, "another") == 0);
    check("joined", pthread_join(t, 0) == 0);
    fflush(stdout);
    pid_t child = fork();
    need("fork", child >= 0);
    if (child == 0) {
        look("a child");
        _exit(done());
    }
    check("a child has ended", waitpid(child, &status, 0) == child && status == 0);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    need("clone", child >= 0);
    if (child == 0) {
        void *word = &t, *head = &t;
        size_t bytes = 0;
        _exit(prctl(PR_GET_TID_ADDRESS, &word) || word || syscall(SYS_get_robust_list, 0, &head, &bytes) || head);
    }
    check("one that asks for neither has none", waitpid(child, &status, 0) == child && status == 0);
    return done();
}
