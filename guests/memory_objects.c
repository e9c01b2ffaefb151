/* Memory objects (memfd_create) that processes hand to each other: by a message, by a fork, by an exec; mapped to be written in one
 * place and to be read in another. Browsers and desktops share their memory so. */
#define _GNU_SOURCE
#include "guest.h"
#include <semaphore.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 200 };

struct object {
    sem_t theirs, ours;
    long value, padding[600];
};

static int make(const char *name) {
    int fd = memfd_create(name, MFD_ALLOW_SEALING);
    need("object", fd >= 0 && ftruncate(fd, sizeof(struct object)) == 0);
    return fd;
}

static void *map(int fd, int prot) {
    void *at = mmap(NULL, sizeof(struct object), prot, MAP_SHARED, fd, 0);
    need("mmap", at != MAP_FAILED);
    return at;
}

static void send_object(int to, int fd) {
    char byte = 'x', control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec one = {&byte, 1};
    struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    need("send", sendmsg(to, &m, 0) == 1);
}

/* In the second of two messages of one call, behind another descriptor in a control message of its own. */
static void send_two(int to, int fd) {
    const int other = STDERR_FILENO;
    char byte = 'y', control[2 * CMSG_SPACE(sizeof fd)] = {0};
    struct iovec one = {&byte, 1};
    struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = &one, .msg_iovlen = 1}},
                           {.msg_hdr = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control}}};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m[1].msg_hdr);
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &other, sizeof other);
    c = (struct cmsghdr *)(control + CMSG_SPACE(sizeof fd));
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    need("send two", sendmmsg(to, m, 2, 0) == 2);
}

static int receive_two(int from) {
    char byte, control[CMSG_SPACE(2 * sizeof(int))];
    struct iovec one = {&byte, 1};
    struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int fd[2];
    need("the first", read(from, &byte, 1) == 1);
    need("the second", recvmsg(from, &m, 0) == 1 && CMSG_FIRSTHDR(&m) && CMSG_FIRSTHDR(&m)->cmsg_len == CMSG_LEN(sizeof fd));
    memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd[1];
}

static int receive_object(int from) {
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec one = {&byte, 1};
    struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int fd;
    need("receive", recvmsg(from, &m, 0) == 1 && CMSG_FIRSTHDR(&m));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

static void serve(struct object *o) {
    for (int i = 0; i < ROUNDS; i++) {
        sem_wait(&o->theirs);
        o->value = o->value * 3 + 1;
        sem_post(&o->ours);
    }
}

__attribute__((noinline)) void ask(struct object *o, const volatile struct object *seen) {
    long sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        o->value += i;
        sem_post(&o->theirs);
        sem_wait(&o->ours);
        sum ^= seen->value;
    }
    printf("%ld\n", sum);
    fflush(stdout);
}

static struct object *begin(int fd) {
    struct object *o = map(fd, PROT_READ | PROT_WRITE);
    need("semaphores", sem_init(&o->theirs, 1, 0) == 0 && sem_init(&o->ours, 1, 0) == 0);
    return o;
}

/* The kernel takes the lower half of a register for the descriptor. */
static void whole_register(int fd) {
    register unsigned long flags __asm__("r10") = MAP_SHARED, file __asm__("r8") = (unsigned)fd | 0x5ull << 32, offset __asm__("r9") = 0;
    char *at;
    __asm__ volatile("syscall"
                     : "=a"(at)
                     : "a"(SYS_mmap), "D"(0), "S"(4096ul), "d"(PROT_READ | PROT_WRITE), "r"(flags), "r"(file), "r"(offset)
                     : "rcx", "r11", "memory");
    const char *again = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    need("both", (long)at > 0 && again != MAP_FAILED);
    at[7] = 'r';
    check("one object", *(volatile const char *)(again + 7) == 'r');
}

int main(int argc, char **argv) {
    int pair[2], status;
    if (argc > 1) {
        serve(map(atoi(argv[1]), PROT_READ | PROT_WRITE));
        return 0;
    }
    whole_register(make("whole"));
    need("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    int early = make("early");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        serve(map(receive_object(pair[1]), PROT_READ | PROT_WRITE));
        serve(map(early, PROT_READ | PROT_WRITE));
        serve(map(receive_two(pair[1]), PROT_READ | PROT_WRITE));
        _exit(0);
    }
    /* Mapped before it is sent, and to be read as well. */
    int fd = make("late");
    struct object *o = begin(fd), *first = begin(early);
    const struct object *seen = map(fd, PROT_READ);
    send_object(pair[0], fd);
    ask(o, seen);
    ask(first, first);
    int two = make("two");
    o = begin(two);
    send_two(pair[0], two);
    ask(o, o);
    need("child", waitpid(child, &status, 0) == child && status == 0);
    /* Another program has it by its number. */
    int passed = make("passed");
    o = begin(passed);
    char number[12];
    snprintf(number, sizeof number, "%d", passed);
    need("vfork", (child = vfork()) >= 0);
    if (child == 0) {
        execl("/proc/self/exe", argv[0], number, NULL);
        _exit(127);
    }
    ask(o, o);
    need("program", waitpid(child, &status, 0) == child && status == 0);
    return done();
}
