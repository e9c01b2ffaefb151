/* SIGKILL at the program itself, by ways that are not kill(getpid()): its group, a queue, one thread. Refused, it goes on. */
#include "guest.h"

static siginfo_t info = {.si_signo = SIGKILL, .si_code = SI_QUEUE};

static void refused(void) {
    check("no such thread", syscall(SYS_tgkill, getpid(), 1 << 22, SIGKILL) == -1 && errno == ESRCH);
    check("no such signal", syscall(SYS_tgkill, getpid(), getpid(), 99) == -1 && errno == EINVAL);
    check("no information", syscall(SYS_rt_sigqueueinfo, getpid(), SIGKILL, 8) == -1 && errno == EFAULT);
    check("thread number 9", syscall(SYS_rt_tgsigqueueinfo, getpid(), SIGKILL, SIGUSR1, &info) == -1);
    __asm__ volatile(".globl flip_here\n.type flip_here, @function\nflip_here: .byte 0x0f, 0x1f, 0x44, 0, 0" : : : "memory");
    exit(done());
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "refused";
    puts("begin"), fflush(stdout);
    if (!strcmp(how, "refused")) refused();
    need("a group of its own", setpgid(0, 0) == 0);
    if (!strcmp(how, "thread")) syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), SIGKILL, &info);
    else kill(-getpgrp(), SIGKILL);
    puts("still here");
    return done();
}
