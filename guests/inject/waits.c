/* Calls a function that returns 0, beside a clock that interrupts it all the time, and waits for ever once it has returned 1. Without a
 * library, whose code would have to be looked through. */
#include <asm/unistd.h>

#define ROUNDS 400
#define SIGALRM 14
#define SA_RESTORER 0x04000000

static long call(long nr, long a, const void *b, void *c, long d)
{
    long rc;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(rc) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return rc;
}

__asm__(".globl answer, back, _start\n"
        "answer: xor %eax, %eax\n"
        "nop\n"
        "nop\n"
        "nop\n"
        "pushfq\n"
        "pop %rdx\n"
        "test $0x100, %edx\n" /* the trap flag of whoever steps it */
        "jnz 1f\n"
        "ret\n"
        "1: mov $2, %eax\n"
        "ret\n"
        ".type answer, @function\n"
        ".size answer, . - answer\n"
        "back: mov $15, %eax\n" /* rt_sigreturn */
        "syscall\n"
        "_start: and $-16, %rsp\n"
        "call begin\n");
extern int answer(void);
extern void back(void);

static void tick(int signal)
{
    (void)signal;
}

static void often(long us)
{
    struct {
        long interval[2], value[2];
    } timer = {{0, us}, {0, us}};
    call(__NR_setitimer, 0, &timer, 0, 0);
}

void begin(void)
{
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        unsigned long mask;
    } action = {tick, SA_RESTORER, back, 0};
    call(__NR_rt_sigaction, SIGALRM, &action, 0, 8);
    often(500);
    char stepped = '0';
    for (int i = 0; i < ROUNDS; i++) {
        int said = answer();
        if (said & 2)
            stepped = '1';
        if (said & 1) {
            often(0);
            for (;;)
                call(__NR_pause, 0, 0, 0, 0);
        }
    }
    call(__NR_write, 1, &stepped, (void *)1, 0);
    call(__NR_exit_group, 0, 0, 0, 0);
}
