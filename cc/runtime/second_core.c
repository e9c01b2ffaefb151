/*
 * --other-core: the second run of each handler on another core.
 *
 * A core that is wrong in the same way each time makes both runs wrong alike, and they agree. So each thread that runs
 * handlers has a partner, a thread of the kernel that is bound to other cores. The second run is not copied there, it is
 * continued there: the partner takes over the stack, the registers and the thread pointer of the first thread, which waits
 * on a stack of its own with its signals held back, and gives all of that back when the second run ends.
 *
 *     thread   E1, R | go: publishes its stack pointer, waits             | V, effects
 *     partner        | takes over the stack pointer and the thread: E2    | gives them back, waits
 *
 * Nothing that hardened code can see is different there: same addresses, same thread-local variables, same pthread_self.
 *
 * Cores are shared out once, at start: the first half of those that the program may use runs the threads of the program,
 * the second half the partners. Processors that are threads of one core are never on different sides.
 *
 * Invariants
 *  1. Either the thread or its partner runs, never both: `turn` says which, by release and acquire.
 *  2. The partner looks before and after the second run at which processor it is, and at the one that the first run ended
 *     on. If both belong to one core the program stops (121): it is never unprotected in silence.
 *  3. Linked only when asked for: core.c asks whether its table of operations is there (modes.h).
 *
 * Not covered: what both runs share apart from the core: caches further out, memory, the code itself (docs/reference/limits-cc.md).
 */
#define _GNU_SOURCE
#include "cores.h"
#include "runtime.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <unistd.h>

enum turn { THREAD = 0, PARTNER = 1, END = 2 };

/* How often a side looks before it asks the kernel to wake it: 20 to 50 us (a pause takes 10 to 25 ns), about what a wait in
   the kernel costs until it is over. So waiting costs at most twice what the better choice would have. */
#define SPINS 2000

/* Stack of a thread that waits: one frame of `wait_for`, and signals are held back. */
#define WAIT_STACK 4096

struct sf_partner {
  /* hand.S: offsets below. */
  uintptr_t sp;         /* the handler's stack, wherever it is not running */
  uintptr_t own_sp;     /* the partner's stack, while it runs the handler */
  uintptr_t wait_sp;    /* where the thread waits */
  uint64_t thread_base; /* thread pointers */
  uint64_t own_base;
  uint64_t instruction; /* the thread pointer is set by an instruction, not by the kernel */
  _Alignas(64) _Atomic uint32_t turn;
  _Atomic uint32_t sleeps[2]; /* by side: it waits in the kernel */
  uint32_t cpu_first;      /* where the first run ended */
  uint32_t away;           /* this code is run by the partner */
  pthread_t thread;
  _Atomic uint32_t tid;
  uint8_t *wait_stack;
};
_Static_assert(offsetof(struct sf_partner, own_sp) == SF_PARTNER_OWN_SP, "offset known to hand.S");
_Static_assert(offsetof(struct sf_partner, wait_sp) == SF_PARTNER_WAIT_SP, "offset known to hand.S");
_Static_assert(offsetof(struct sf_partner, thread_base) == SF_PARTNER_THREAD_BASE, "offset known to hand.S");
_Static_assert(offsetof(struct sf_partner, own_base) == SF_PARTNER_OWN_BASE, "offset known to hand.S");
_Static_assert(offsetof(struct sf_partner, instruction) == SF_PARTNER_INSTRUCTION, "offset known to hand.S");

/* hand.S. Each returns when the handler's stack is given back to the side that called it. */
extern void sf_hand_over(struct sf_partner *);  /* the thread: goes on in the partner, where it returns */
extern void sf_take_over(struct sf_partner *);  /* the partner: returns when the handler has called sf_hand_back */
extern void sf_hand_back(struct sf_partner *);  /* the handler, run by the partner: goes on in the thread */

#define FIX_CPUS "let it use more (taskset, cpuset), or link without --other-core"

static cpu_set_t there; /* the partners' side; the other one is the program's */
#define core_of sf_core_of

__attribute__((constructor(105))) static void share_out(void) {
  cpu_set_t here;
  sf_share_out(&here, &there, "the second run belongs on another core", FIX_CPUS);
  if (sched_setaffinity(0, sizeof here, &here) != 0)
    sf_stop("the second run belongs on another core, and threads cannot be bound to cores", FIX_CPUS);
}

/* The processor that a thread of the kernel is on, by the thread pointer that it began with: the kernel writes it there. */
static inline uint32_t cpu_at(uint64_t base) {
  uint32_t cpu;
  if (likely(__rseq_size != 0))
    return *(volatile uint32_t *)(base + (uint64_t)__rseq_offset + offsetof(struct rseq, cpu_id));
  sf_syscall(SYS_getcpu, (long)&cpu, 0, 0, 0, 0, 0);
  return cpu;
}

static void check_cores(const struct sf_partner *p) {
  uint32_t second = cpu_at(p->own_base);
  if (unlikely(second >= CPU_SETSIZE || p->cpu_first >= CPU_SETSIZE || core_of[second] == core_of[p->cpu_first]))
    sf_stop("the second run belongs on another core, and ran on the same one: the program has changed its threads' affinity",
            "bind threads among the first half of the processors only, or link without --other-core");
}

/* Returns when it is the turn of `side`, or of END. Runs on any stack and with any thread pointer, so: system calls alone. */
static enum turn wait_for(struct sf_partner *p, enum turn side) {
  for (;;) {
    for (unsigned i = 0; i < SPINS; i++) {
      uint32_t turn = atomic_load_explicit(&p->turn, memory_order_acquire);
      if (turn == (uint32_t)side || turn == END)
        return (enum turn)turn;
      __builtin_ia32_pause();
    }
    atomic_store(&p->sleeps[side], 1);
    uint32_t turn = atomic_load(&p->turn);
    if (turn != (uint32_t)side && turn != END)
      sf_syscall(SYS_futex, (long)&p->turn, 128 /* WAIT, PRIVATE */, (long)turn, 0, 0, 0);
    atomic_store(&p->sleeps[side], 0);
  }
}

static void give(struct sf_partner *p, enum turn side) {
  atomic_store(&p->turn, (uint32_t)side);
  if (unlikely(atomic_load(&p->sleeps[side == THREAD ? THREAD : PARTNER])))
    sf_syscall(SYS_futex, (long)&p->turn, 129 /* WAKE, PRIVATE */, 1, 0, 0, 0);
}

/* Called by sf_hand_over on the waiting stack. */
void sf_second_core_wait(struct sf_partner *p);
void sf_second_core_wait(struct sf_partner *p) {
  give(p, PARTNER);
  wait_for(p, THREAD);
}

static void *partner(void *of) {
  struct sf_partner *p = of;
  p->own_base = (uint64_t)__builtin_thread_pointer();
  if (sf_recovers())
    __sf_recover.thread(); /* a run that crashes is caught here as well */
  atomic_store(&p->tid, (uint32_t)sf_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0));
  while (wait_for(p, PARTNER) != END) {
    check_cores(p);
    sf_take_over(p);
    check_cores(p);
    p->away = 0;
    give(p, THREAD);
  }
  return NULL;
}

/* All but those by which a run itself can fail, and those of the C library's threads. */
static uint64_t held_back(void) {
  return ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) | 1ull << (SIGFPE - 1) | 1ull << (SIGILL - 1) | 1ull << (SIGTRAP - 1) | 1ull << 31 |
           1ull << 32);
}

static void forked_second_core(void) {
  /* The child has the one thread that forked, and no partner. */
  for (struct sf_context *c = atomic_load(&sf_contexts); c; c = c->next)
    c->partner = NULL;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void watch_forks_second_core(void) { pthread_atfork(NULL, NULL, forked_second_core); }

/* Before a handler: it has a partner. */
SF_COLD static void make_partner(struct sf_context *c) {
  pthread_once(&once, watch_forks_second_core);
  struct sf_partner *p = sf_map(sizeof *p);
  p->wait_stack = sf_map(WAIT_STACK);
  p->wait_sp = (uintptr_t)p->wait_stack + WAIT_STACK;
  p->thread_base = (uint64_t)__builtin_thread_pointer();
  p->instruction = getauxval(AT_HWCAP2) >> 1 & 1; /* HWCAP2_FSGSBASE */
  uint64_t mask = held_back(), old;
  sf_syscall(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, (long)&old, 8, 0, 0);
  pthread_attr_t a;
  pthread_attr_init(&a);
  pthread_attr_setaffinity_np(&a, sizeof there, &there);
  pthread_attr_setstacksize(&a, 256 << 10); /* two pages are used; the rest has room for the program's thread-local variables */
  int why = pthread_create(&p->thread, &a, partner, p);
  pthread_attr_destroy(&a);
  sf_syscall(SYS_rt_sigprocmask, SIG_SETMASK, (long)&old, 0, 8, 0, 0);
  if (why != 0)
    sf_stop("the second run belongs on another core, and the kernel gives no thread for it there",
            "raise the limit of threads, or link without --other-core");
  c->partner = p;
}

static void sf_second_core_ready(struct sf_context *c) {
  if (unlikely(!c->partner))
    make_partner(c);
}

static void sf_second_core_go(struct sf_context *c) {
  struct sf_partner *p = c->partner;
  uint64_t mask = held_back(), old;
  p->cpu_first = cpu_at(p->thread_base);
  p->away = 1;
  c->signals = 0;
  sf_syscall(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, (long)&old, 8, 0, 0);
  c->signals = old;
  sf_hand_over(p);
}

static void sf_second_core_back(struct sf_context *c) {
  struct sf_partner *p = c->partner;
  if (unlikely(!p || !p->away))
    return;
  sf_hand_back(p);
  sf_syscall(SYS_rt_sigprocmask, SIG_SETMASK, (long)&c->signals, 0, 8, 0, 0);
}

/* A retry: on another core of its side, where there is one. */
static void sf_second_core_move(struct sf_context *c) {
  struct sf_partner *p = c->partner;
  if (!p || CPU_COUNT(&there) < 2)
    return;
  uint32_t now = cpu_at(p->own_base);
  cpu_set_t others = there;
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &others) && core_of[i] == core_of[now < CPU_SETSIZE ? now : 0])
      CPU_CLR(i, &others);
  if (CPU_COUNT(&others))
    sched_setaffinity((pid_t)atomic_load(&p->tid), sizeof others, &others);
}

static void sf_second_core_thread_end(struct sf_context *c) {
  struct sf_partner *p = c->partner;
  if (!p)
    return;
  c->partner = NULL;
  give(p, END);
  pthread_join(p->thread, NULL);
  sf_unmap(p->wait_stack, WAIT_STACK);
  sf_unmap(p, sizeof *p);
}

SF_API const struct sf_second_core __sf_second_core = {
    .ready = sf_second_core_ready,
    .go = sf_second_core_go,
    .back = sf_second_core_back,
    .move = sf_second_core_move,
    .thread_end = sf_second_core_thread_end,
};
