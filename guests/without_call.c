/* Executes a command for which the kernel refuses one system call, as containers do: NUMBER[:INDEX][@VALUE][=ERRNO] CMD ARGS. With
 * VALUE only where the argument of that index, the first one by default, is that. EPERM is what they say; 0 is a filter that says
 * yes and does nothing. */
#include "guest.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

int main(int argc, char **argv) {
    need("words", argc > 2);
    char *with;
    unsigned number = (unsigned)strtoul(argv[1], &with, 10);
    unsigned index = *with == ':' ? (unsigned)strtoul(with + 1, &with, 10) : 0;
    int any = *with != '@';
    unsigned value = any ? 0 : (unsigned)strtoul(with + 1, &with, 0);
    unsigned answer = *with == '=' ? (unsigned)atoi(with + 1) : EPERM;
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * index),
        BPF_JUMP(BPF_JMP | (any ? BPF_JGE : BPF_JEQ) | BPF_K, value, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    need("no new privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    need("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    execv(argv[2], argv + 2);
    return 127;
}
