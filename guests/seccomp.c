/* A program that confines itself: a filter that answers EPERM to mkdir, installed after no_new_privs. */
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

int main(void) {
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdir, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog p = {4, f};
    puts("before");
    fflush(stdout);
    check("privileges given up", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    answer("by prctl", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) == 0);
    answer("by seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p) == 0);
    answer("mkdir", syscall(SYS_mkdir, "d", 0755) == 0);
    return done();
}
