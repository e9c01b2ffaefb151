/* How many FUTEX_WAKE says that it has woken, where threads of other processes wait and threads beside them go on. */
#include "guest.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum { WORDS = 4, MS = 1000000 };

static struct shared {
    atomic_int word[WORDS];
    atomic_int comes, returned; /* processes whose thread is about to wait, and waits that have ended */
    int result[2];
} *s;

static struct {
    int slot, op, bitset, limit_ms;
} how;
static pthread_t waiter;
static atomic_int over;

static void rest(long ms) {
    struct timespec t = { ms / 1000, ms % 1000 * MS };
    while (nanosleep(&t, &t) < 0)
        ;
}

static long futex(atomic_int *word, int op, long n, long more, atomic_int *to, int bits) {
    return syscall(SYS_futex, word, op, n, more, to, bits);
}

static void *waits(void *p) {
    struct timespec at = { how.limit_ms / 1000, how.limit_ms % 1000 * (long)MS };
    atomic_fetch_add(&s->comes, 1);
    long r = futex(&s->word[0], how.op, 0, how.limit_ms ? (long)&at : 0, NULL, how.bitset);
    s->result[how.slot] = r < 0 ? errno : 0;
    atomic_fetch_add(&s->returned, 1);
    atomic_store(&over, 1);
    return p;
}

static void hears(int number) {
    sink(&number, sizeof number);
}

/* A process of which one thread waits for the word, and another one goes on. */
static pid_t process(int slot, int op, int bitset, int limit_ms, int signals) {
    fflush(stdout);
    pid_t child = fork();
    need("fork", child >= 0);
    if (child)
        return child;
    sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = hears }, NULL);
    atomic_store(&over, 0);
    how.slot = slot, how.op = op, how.bitset = bitset, how.limit_ms = limit_ms;
    if (pthread_create(&waiter, NULL, waits, NULL))
        _exit(1);
    for (int i = 0; !atomic_load(&over); i++) {
        rest(5);
        if (signals && i == 10)
            pthread_kill(waiter, SIGUSR1);
    }
    _exit(0);
}

static void ends(pid_t child) {
    int status;
    need("wait", waitpid(child, &status, 0) == child);
}

/* Calls until some have been found, all in all. */
static long until(long wanted, int op, long n, long more, int bits) {
    long sum = 0;
    for (int i = 0; sum < wanted && i < 2000; i++) {
        sum += futex(&s->word[0], op, n, more, &s->word[1], bits);
        rest(1);
    }
    return sum;
}

static void came(int n) {
    while (atomic_load(&s->comes) < n)
        rest(1);
    rest(50);
}

static void again(void) {
    memset(s, 0, sizeof *s);
}

static long wakes(int word) {
    return futex(&s->word[word], FUTEX_WAKE, INT_MAX, 0, NULL, 0);
}

/* Where tests let a fault strike. */
__attribute__((noinline)) static void waits_on(void) {
    printf("waits on: %s\n", atomic_load(&s->returned) ? "no" : "yes");
}

static void one(void) {
    pid_t child = process(0, FUTEX_WAIT, 0, 0, 0);
    came(1);
    waits_on();
    long n = until(1, FUTEX_WAKE, 1, 0, 0);
    ends(child);
    printf("one: %ld woken, %d; then %ld\n", n, s->result[0], wakes(0));
    again();
}

static void some_bits(void) {
    pid_t child = process(0, FUTEX_WAIT_BITSET, 2, 0, 0);
    came(1);
    long others = futex(&s->word[0], FUTEX_WAKE_BITSET, INT_MAX, 0, NULL, 4);
    long n = until(1, FUTEX_WAKE_BITSET, INT_MAX, 0, 6);
    ends(child);
    printf("bits: %ld and %ld woken, %d\n", others, n, s->result[0]);
    again();
}

static void moved(void) {
    pid_t child = process(0, FUTEX_WAIT, 0, 0, 0);
    came(1);
    long n = until(1, FUTEX_CMP_REQUEUE, 0, INT_MAX, 0);
    s->word[0] = 1;
    rest(20);
    printf("moved: %ld, there %ld, back %d\n", n, wakes(0), atomic_load(&s->returned));
    n = wakes(1);
    ends(child);
    printf("behind: %ld woken, %d\n", n, s->result[0]);
    again();
}

/* Ends by itself, or by a handler. */
static void not_woken(const char *name, int limit_ms, int signals) {
    pid_t child = process(0, FUTEX_WAIT, 0, limit_ms, signals);
    ends(child);
    printf("%s: %ld woken, %d\n", name, wakes(0), s->result[0]);
    again();
}

static void killed(void) {
    pid_t child = process(0, FUTEX_WAIT, 0, 0, 0);
    came(1);
    kill(child, SIGKILL);
    ends(child);
    printf("killed: %ld woken\n", wakes(0));
    again();
}

static void two(void) {
    pid_t a = process(0, FUTEX_WAIT, 0, 0, 0), b = process(1, FUTEX_WAIT, 0, 0, 0);
    came(2);
    long first = futex(&s->word[0], FUTEX_WAKE, 1, 0, NULL, 0), n = until(2 - first, FUTEX_WAKE, INT_MAX, 0, 0);
    ends(a);
    ends(b);
    printf("two: %ld and %ld woken, %d, %d\n", first, n, s->result[0], s->result[1]);
    again();
}

/* A thread waits before there is anybody to share the word with. */
static void before(void) {
    pthread_t t;
    how.op = FUTEX_WAIT;
    need("thread", pthread_create(&t, NULL, waits, NULL) == 0);
    came(1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit((int)until(1, FUTEX_WAKE, INT_MAX, 0, 0));
    int status;
    need("wait", waitpid(child, &status, 0) == child);
    printf("before the fork: %d woken\n", WEXITSTATUS(status));
    wakes(0);
    pthread_join(t, NULL);
    again();
}

/* Two threads of one process: each waits once, and the other one can do no more than that. */
static void *answers(void *p) {
    long n = until(1, FUTEX_WAKE, INT_MAX, 0, 0);
    long r = futex(&s->word[0], FUTEX_WAIT, 0, 0, NULL, 0);
    s->result[0] = (int)n;
    s->result[1] = r < 0 ? errno : 0;
    return p;
}

static void in_turn(void) {
    pthread_t t;
    need("thread", pthread_create(&t, NULL, answers, NULL) == 0);
    long r = futex(&s->word[0], FUTEX_WAIT, 0, 0, NULL, 0);
    rest(20);
    long n = until(1, FUTEX_WAKE, INT_MAX, 0, 0);
    pthread_join(t, NULL);
    printf("in turn: %ld; %d woken, %ld woken; %d\n", r, s->result[0], n, s->result[1]);
    again();
}

int main(void) {
    s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need("mmap", s != MAP_FAILED);
    before();
    in_turn();
    one();
    some_bits();
    moved();
    not_woken("late", 20, 0);
    not_woken("handler", 0, 1);
    killed();
    two();
    return done();
}
