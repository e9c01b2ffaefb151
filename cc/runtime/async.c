/*
 * --validate=async: a handler runs once in its thread, its effects are there at once, and its second run happens later, in
 * another process on another core, against the memory that the first run saw.
 *
 *     thread      I  E1 | publish | effects, next handler ...              (waits if LAG handlers are not validated)
 *     validator                   | memory as E1 saw it, E2, V | next
 *     watcher     a thread of the program that sleeps until the validator ends; then the program ends as it says
 *
 * The validator is a child of the program that shares nothing with it but the ring of records. A record holds every word
 * that the first run has touched, with the value it had then (reads.cpp, store.S) and, where it was written, the value that
 * it was left with; ranges; the driver's frame; all that was recorded for replay. The validator puts that into its own
 * memory, at the same addresses, and goes on in the driver where a second run begins. So nothing needs to be versioned:
 * what the thread, libraries and the kernel do to memory meanwhile is not seen there, and what the second run does is
 * not seen here.
 *
 * Invariants
 *  1. A record is published when it is complete, and its sum is checked before it is used.
 *  2. At most LAG records are not validated; the thread waits for the validator, never the other way round by force.
 *  3. The validator has no descriptor but standard error, no signal reaches it, no wait of the program sees it, and it dies
 *     with the program.
 *  4. After a difference the program ends with the validator's status; with --hold-output nothing that was to be held has
 *     left (hold.c).
 *
 * Not covered: handlers of more than one thread, locks and condition variables in handlers, --recover, --state, C++: all
 * refused. What a handler has done that cannot wait (calls of class once) is done when it runs.
 */
#define _GNU_SOURCE
#include "async.h"
#include "cores.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct sf_later sf_later;
void sf_reads_format(const char *how, __builtin_va_list); /* reads.c */
/* Symbols of the link. Linkers disagree whether absolute ones move with a program that does; their distance never does. */
extern const char __sf_async_lag[], __sf_async_none[];
extern const int __sf_hold_on __attribute__((weak));

#define WHY "the second run belongs on another core"
#define FIX_CPUS "let it use more (taskset, cpuset), or link without --validate=async"

static size_t head; /* where the next record goes */
static uint32_t lag;
static pid_t owner;           /* the process that has a validator; its children have none */
static pthread_t watching;
static uint8_t frame_kept[64 << 10];
static size_t frame_bytes;
static const char *lag_file;

static bool holds_async(void) { return &__sf_hold_on != NULL; }

/* Until so many are validated. A validator that has ended ends the program (watcher). */
static void wait_validated(uint32_t target) {
  for (unsigned i = 0; i < SPINS; i++) {
    if ((int32_t)(atomic_load_explicit(&sf_later.shared->validated, memory_order_acquire) - target) >= 0)
      return;
    pause_a_little();
  }
  for (;;) {
    atomic_store(&sf_later.shared->sleeps_thread, 1);
    uint32_t now = atomic_load(&sf_later.shared->validated);
    if ((int32_t)(now - target) >= 0)
      break;
    futex_wait(&sf_later.shared->validated, now);
  }
  atomic_store(&sf_later.shared->sleeps_thread, 0);
}

/* The validator looks again: there is a record, or it is to go. */
static void ring_bell(void) {
  atomic_fetch_add(&sf_later.shared->bell, 1);
  futex_wake(&sf_later.shared->bell);
}

static bool is_owner(void) { return sf_later.shared && owner == (pid_t)sf_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0); }

static void wait_all(void) {
  struct shared *s = sf_later.shared;
  if (s && atomic_load_explicit(&s->validated, memory_order_acquire) != atomic_load_explicit(&s->published, memory_order_relaxed) &&
      is_owner())
    wait_validated(atomic_load(&s->published));
}

static void sf_async_hold(void) {
  if (holds_async())
    wait_all();
}

static uint64_t sf_async_later(void) {
  return holds_async() ? 0 : (uint64_t)(atomic_load(&sf_later.shared->published) - atomic_load(&sf_later.shared->validated));
}

static struct sf_context told;

void __sf_async_leaves(void);

static _Noreturn void ended_async(const siginfo_t *how) {
  if (how->si_code == CLD_EXITED && (how->si_status == 121 || how->si_status == 122 || how->si_status == 123))
    sf_leave(how->si_status); /* it has said why */
  bool busy = atomic_load(&sf_later.shared->busy);
  told.handler = sf_later.shared->handler;
  told.event = sf_later.shared->event;
  __sf_own = &told;
  __sf_tls.phase = SF_E2; /* of which is told */
  if (busy && told.handler)
    sf_tell(how->si_code == CLD_EXITED ? "the second run has ended the validator, by status" : "the second run has crashed, by signal",
            how->si_code == CLD_EXITED ? "exit" : "number", 0, (uint64_t)how->si_status, 0, "stopped");
  else
    sf_tell(how->si_code == CLD_EXITED ? "the validator has ended, by status" : "the validator was killed, by signal",
            how->si_code == CLD_EXITED ? "exit" : "number", 0, (uint64_t)how->si_status, 0, "stopped");
  sf_leave(122);
}

static _Atomic uint32_t started; /* futex: 1 the validator is there, 2 it cannot be */

static void *watcher(void *of) {
  (void)of;
  pid_t parent = (pid_t)sf_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
  /* A child that tells nobody when it ends (no SIGCHLD), so that no wait of the program finds it. */
  long pid = sf_syscall(SYS_clone, 0, 0, 0, 0, 0, 0);
  if (pid == 0)
    sf_validator(parent);
  atomic_store(&started, pid > 0 ? 1 : 2);
  futex_wake(&started);
  if (pid < 0)
    return NULL;
  siginfo_t how;
  long r;
  do {
    memset(&how, 0, sizeof how);
    r = sf_syscall(SYS_waitid, P_PID, pid, (long)&how, WEXITED | __WALL, 0, 0);
  } while (r == -EINTR);
  if (r == 0 && !(atomic_load(&sf_later.shared->ending) && how.si_code == CLD_EXITED && how.si_status == 0))
    ended_async(&how);
  return NULL;
}

static void *reserve_async(size_t bytes, int how) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    sf_stop("memory for validation is needed, the kernel gives none", "raise the memory limit of the process (ulimit -v)");
  return at;
}

static void drop_async(void) {
  if (!sf_later.shared)
    return;
  munmap(sf_later.shared, sizeof *sf_later.shared);
  munmap(sf_later.ring, RING);
  munmap(sf_later.own_memory, OWN);
  munmap(sf_later.own_stack, STACK);
  sf_later.shared = NULL;
}

static void before_fork(void) { sf_async_hold(); }
static void forked_async(void) {
  /* The child has no validator, and gets its own with its first handler. */
  drop_async();
  owner = 0;
}

static void start_async(struct sf_context *c) {
  static bool watches_forks;
  if (!watches_forks)
    pthread_atfork(before_fork, NULL, forked_async);
  watches_forks = true;
  sf_later.context = c;
  sf_later.thread_base = (uint64_t)__builtin_thread_pointer();
  owner = (pid_t)sf_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
  sf_later.shared = reserve_async(sizeof *sf_later.shared, MAP_SHARED);
  sf_later.ring = reserve_async(RING, MAP_SHARED);
  sf_later.own_memory = reserve_async(OWN, MAP_PRIVATE);
  sf_later.own_stack = reserve_async(STACK, MAP_PRIVATE);
  sf_later.own_used = head = 0;
  sf_later.slots = 0;
  atomic_store(&started, 0);
  pthread_attr_t a;
  pthread_attr_init(&a);
  pthread_attr_setstacksize(&a, STACK);
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int why = pthread_create(&watching, &a, watcher, NULL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&a);
  while (why == 0 && atomic_load(&started) == 0)
    futex_wait(&started, 0);
  if (why != 0 || atomic_load(&started) == 2)
    sf_stop("a process and a thread are needed for validation, and the kernel gives none", "raise the limit of processes (ulimit -u)");
}

__attribute__((constructor(105))) static void prepare_async(int argc, char **argv, char **environment) {
  (void)argc, (void)argv;
  cpu_set_t here;
  sf_share_out(&here, &sf_later.there, WHY, FIX_CPUS);
  if (sched_setaffinity(0, sizeof here, &here) != 0)
    sf_stop(WHY ", and threads cannot be bound to cores", FIX_CPUS);
  uintptr_t asked = (uintptr_t)__sf_async_lag - (uintptr_t)__sf_async_none;
  lag = asked < LAG_MAX ? (uint32_t)asked : LAG_MAX;
  static const char name[] = "STEADFAST_LAG=";
  for (char **e = environment; e && *e; e++)
    if (sf_length(*e) >= sizeof name - 1 && sf_equal(*e, name, sizeof name - 1))
      lag_file = *e + sizeof name - 1;
}

static void sf_async_begin(struct sf_context *c, const struct sf_handler *h) {
  if (unlikely(!sf_later.shared))
    start_async(c);
  if (unlikely(sf_later.thread_base != (uint64_t)__builtin_thread_pointer()))
    sf_stop("a second thread runs handlers, and --validate=async keeps the order of one",
            "run handlers in one thread, or link without --validate=async");
  uintptr_t from = __sf_tls.kept[7] + 8, to = __sf_tls.kept[1] + 16 + (h->flags >> 8);
  if (unlikely(to > c->stack_high))
    to = c->stack_high;
  if (unlikely(to <= from || to - from > sizeof frame_kept))
    sf_stop("a handler's frame is larger than 64 KiB", "pass large arguments by pointer");
  frame_bytes = to - from;
  sf_copy(frame_kept, (void *)from, frame_bytes);
}

/* Room for a record: waits until there is. */
static uint8_t *room_async(size_t bytes) {
  if (bytes > RING)
    sf_stop("a handler reads or writes more memory than the ring of records holds (64 MiB)", "split the handler");
  for (;;) {
    uint32_t done = atomic_load_explicit(&sf_later.shared->validated, memory_order_acquire);
    uint32_t next = atomic_load_explicit(&sf_later.shared->published, memory_order_relaxed);
    if (done == next) {
      if (unlikely(head > RING / 16)) {
        /* What a burst has used goes back. */
        madvise(sf_later.ring + RING / 16, RING - RING / 16, MADV_REMOVE);
      }
      head = 0;
      return sf_later.ring;
    }
    if (next - done < lag) {
      size_t oldest = sf_later.shared->place[done % LAG_MAX];
      if (head > oldest) {
        if (bytes <= RING - head)
          return sf_later.ring + head;
        if (bytes <= oldest) {
          head = 0;
          return sf_later.ring;
        }
      } else if (bytes < oldest - head) {
        return sf_later.ring + head;
      }
    }
    wait_validated(done + 1);
  }
}

static void *put_async(uint8_t **at, const void *from, size_t bytes) {
  void *to = *at;
  if (bytes == 0)
    return to;
  if (bytes & 7)
    *(uint64_t *)(*at + (bytes & ~7ull)) = 0;
  sf_copy(to, from, bytes);
  *at += (bytes + 7) & ~7ull;
  return to;
}

static void sf_async_publish(struct sf_context *c) {
  if (unlikely(c->locks.used))
    sf_stop("a handler takes a lock, and --validate=async keeps no order of locks", "link without --validate=async");
  if (unlikely(c->split_state))
    sf_stop("a handler waits for a condition, and --validate=async keeps no order of locks", "link without --validate=async");
  size_t all = sizeof(struct record) + sizeof c->messages + sizeof c->ignored + c->count * 24 + c->ranges.used + c->arena.used +
               c->queue.used + c->deferred.used + c->parts.used + frame_bytes + 7 * 8;
  uint8_t *begin = room_async(all), *at = begin + sizeof(struct record);
  struct record *r = (struct record *)begin;
  *r = (struct record){
      .handler = c->handler,
      .event = c->event,
      .result = c->result_first,
      .stack_low = __sf_tls.stack_low,
      .stack_length = __sf_tls.stack_length,
      .mxcsr = c->mxcsr,
      .mxcsr_first = c->mxcsr_first,
      .errno_begin = (uint64_t)c->errno_begin,
      .message_count = c->message_count,
      .message_cursor = c->messages_outside,
      .ignored_count = c->ignored_count,
      .count = c->count,
      .ranges = c->ranges.used,
      .arena = c->arena.used,
      .queue = c->queue.used,
      .deferred = c->deferred.used,
      .parts = c->parts.used,
      .frame = frame_bytes,
  };
  memcpy(r->kept, __sf_tls.kept, sizeof r->kept);
  put_async(&at, c->entries, c->count * sizeof *c->entries);
  uint64_t *news = (uint64_t *)at;
  for (size_t i = 0; i < c->count; i++) {
    uint64_t where = c->entries[i].where;
    news[i] = where >> 56 == 0xff ? 0 : *(volatile uint64_t *)(where & 0xffffffffffffffull);
  }
  at += c->count * 8;
  struct sf_range *ranges = (struct sf_range *)c->ranges.base;
  for (size_t i = 0; i < c->ranges.used / sizeof *ranges; i++)
    sf_copy(c->arena.base + ranges[i].old + ranges[i].length, (void *)ranges[i].at, ranges[i].length);
  put_async(&at, ranges, c->ranges.used);
  put_async(&at, c->arena.base, c->arena.used);
  put_async(&at, c->queue.base, c->queue.used);
  put_async(&at, c->deferred.base, c->deferred.used);
  put_async(&at, c->parts.base, c->parts.used);
  put_async(&at, c->messages, c->message_count * sizeof *c->messages);
  put_async(&at, c->ignored, c->ignored_count * sizeof *c->ignored);
  put_async(&at, frame_kept, frame_bytes);
  r->bytes = (uint64_t)(at - begin);
  r->tsc = __builtin_ia32_rdtsc();
  r->sum = sum_of(begin + 8, r->bytes - 8);
  uint32_t index = atomic_load_explicit(&sf_later.shared->published, memory_order_relaxed);
  sf_later.shared->place[index % LAG_MAX] = (uint64_t)(begin - sf_later.ring);
  head = (size_t)(at - sf_later.ring);
  atomic_store(&sf_later.shared->published, index + 1);
  if (unlikely(atomic_load(&sf_later.shared->sleeps_validator)))
    ring_bell();
}

/* With --hold-output: what leaves by the handler itself waits. Memory that it frees is its own affair. */
static void sf_async_before_effects(struct sf_context *c) {
  if (!holds_async())
    return;
  struct sf_deferred *d = (struct sf_deferred *)c->deferred.base, *end = (struct sf_deferred *)(c->deferred.base + c->deferred.used);
  for (; d != end; d++)
    if (d->last == 0) {
      wait_all();
      return;
    }
}

/* The end. */

static void put_number_async(char **to, uint64_t v) {
  char digits[24];
  int n = 0;
  do
    digits[n++] = (char)('0' + v % 10);
  while (v /= 10);
  while (n)
    *(*to)++ = digits[--n];
}

/* STEADFAST_LAG: lines of "behind BITS HANDLERS" and "delay BITS HANDLERS", for the powers of two that occurred. */
static void write_lag(void) {
  static char text[8192];
  char *to = text;
  for (int k = 0; k < 2; k++)
    for (unsigned i = 0; i < 64; i++) {
      uint64_t n = k ? sf_later.shared->delay[i] : sf_later.shared->behind[i];
      if (n == 0)
        continue;
      memcpy(to, k ? "delay  " : "behind ", 7);
      to += 7;
      put_number_async(&to, i);
      *to++ = ' ';
      put_number_async(&to, n);
      *to++ = '\n';
    }
  int fd = open(lag_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    return;
  sf_syscall(SYS_write, fd, (long)text, to - text, 0, 0, 0);
  close(fd);
}

/* All is validated, or the program does not end as it wanted to; and nothing stays behind. */
__attribute__((destructor(105))) static void end(void) {
  if (!sf_later.shared || !is_owner())
    return;
  wait_validated(atomic_load(&sf_later.shared->published));
  if (lag_file)
    write_lag();
  atomic_store(&sf_later.shared->ending, 1);
  ring_bell();
  pthread_join(watching, NULL);
  drop_async();
  owner = 0;
}

/* A program that ends without its exit handlers (leave.c). */
void __sf_async_leaves(void) {
  if (sf_later.shared && is_owner())
    wait_validated(atomic_load(&sf_later.shared->published));
}

SF_API const struct sf_async __sf_async = {
    .begin = sf_async_begin,
    .publish = sf_async_publish,
    .before_effects = sf_async_before_effects,
    .hold = sf_async_hold,
    .validated = sf_async_validated,
    .later = sf_async_later,
    .reads = __sf_reads,
    .reads_string = __sf_reads_string,
    .reads_format = sf_reads_format,
};
