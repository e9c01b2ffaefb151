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
#include "cores.h"
#include "runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

SF_API const int __sf_async_on = 1;
/* It comes with this file: weak names alone take nothing out of an archive. */
extern const int sf_reads_here;
__attribute__((used)) static const int *const reads = &sf_reads_here;
/* Symbols of the link. Linkers disagree whether absolute ones move with a program that does; their distance never does. */
extern const char __sf_async_lag[], __sf_async_none[];
extern const int __sf_hold_on __attribute__((weak));
_Noreturn void sf_leave(int status); /* fail.c */

#define WHY "the second run belongs on another core"
#define FIX_CPUS "let it use more (taskset, cpuset), or link without --validate=async"

/* Handlers that may wait, at most: a table of their records. */
#define LAG_MAX 4096
/* Bytes of the ring: the largest record. Only what is used is memory: the ring begins anew whenever it is empty. */
#define RING (64ull << 20)
/* The validator's own memory: the table for a record that fills the ring, up to ten slots of 9 bytes for each word of 24 bytes. */
#define OWN (512ull << 20)
/* How often a side looks before it asks the kernel to wake it: 20 to 50 us (a pause takes 10 to 25 ns), about what a wait in
   the kernel costs until it is over. */
#define SPINS 2000
#define STACK (256 << 10)
#define PAGE 4096ull
/* Seconds of its own processor time after which a second run is said not to end. */
#define ENDLESS 2

struct record {
  uint64_t sum; /* of all that follows */
  uint64_t bytes;
  const struct sf_handler *handler;
  uint64_t event, result;
  uint64_t kept[8]; /* of the driver, at its call of __sf_begin */
  uint64_t stack_low, stack_length;
  uint64_t mxcsr, mxcsr_first, errno_begin;
  uint64_t message_count, message_cursor, ignored_count;
  uint64_t count, ranges, arena, queue, deferred, parts; /* entries; bytes of each buffer */
  uint64_t frame;                                        /* bytes from kept[7] + 8 on */
  uint64_t tsc;                                          /* when it was published */
  /* Then: entries, news, ranges, arena, queue, deferred, parts, messages, ignored, frame. Short, since each line of it goes
     from one core's cache to the other's. */
};

struct shared {
  _Alignas(64) _Atomic uint32_t published;
  _Alignas(64) _Atomic uint32_t validated; /* futex */
  _Alignas(64) _Atomic uint32_t sleeps_thread, sleeps_validator;
  _Atomic uint32_t bell; /* futex: what the validator sleeps on */
  _Atomic uint32_t ending; /* the program ends: the validator is to go */
  _Alignas(64) _Atomic uint32_t busy;   /* the validator is in a second run */
  const struct sf_handler *handler; /* of that */
  uint64_t event;
  uint64_t behind[64]; /* handlers by how many had run when they were validated, by powers of two */
  uint64_t delay[64];  /* by the time since they were published, in cycles */
  _Alignas(64) uint64_t place[LAG_MAX]; /* where a record begins */
};

static struct shared *shared;
static uint8_t *ring;
static size_t head; /* where the next record goes */
static uint32_t lag;
static cpu_set_t there;
static pid_t owner;           /* the process that has a validator; its children have none */
static uint64_t thread_base;  /* thread pointer of the thread whose handlers they are */
static pthread_t watching;
static struct sf_context *context;
static uint8_t frame_kept[64 << 10];
static size_t frame_bytes;
static uint8_t *own_stack, *own_memory;
static size_t own_used;
static const char *lag_file;

static bool holds(void) { return &__sf_hold_on != NULL; }

static void pause_a_little(void) { __builtin_ia32_pause(); }

static void futex_wait(_Atomic uint32_t *at, uint32_t seen) { sf_syscall(SYS_futex, (long)at, 0 /* WAIT */, (long)seen, 0, 0, 0); }
static void futex_wake(_Atomic uint32_t *at) { sf_syscall(SYS_futex, (long)at, 1 /* WAKE */, 1, 0, 0, 0); }

/* Until so many are validated. A validator that has ended ends the program (watcher). */
static void wait_validated(uint32_t target) {
  for (unsigned i = 0; i < SPINS; i++) {
    if ((int32_t)(atomic_load_explicit(&shared->validated, memory_order_acquire) - target) >= 0)
      return;
    pause_a_little();
  }
  for (;;) {
    atomic_store(&shared->sleeps_thread, 1);
    uint32_t now = atomic_load(&shared->validated);
    if ((int32_t)(now - target) >= 0)
      break;
    futex_wait(&shared->validated, now);
  }
  atomic_store(&shared->sleeps_thread, 0);
}

/* The validator looks again: there is a record, or it is to go. */
static void ring_bell(void) {
  atomic_fetch_add(&shared->bell, 1);
  futex_wake(&shared->bell);
}

static bool is_owner(void) { return shared && owner == (pid_t)sf_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0); }

static void wait_all(void) {
  if (shared && atomic_load_explicit(&shared->validated, memory_order_acquire) != atomic_load_explicit(&shared->published, memory_order_relaxed) &&
      is_owner())
    wait_validated(atomic_load(&shared->published));
}

void sf_async_hold(void) {
  if (holds())
    wait_all();
}

uint64_t sf_async_later(void) {
  return holds() ? 0 : (uint64_t)(atomic_load(&shared->published) - atomic_load(&shared->validated));
}

/* FNV's multiplication over words: a changed, lost or moved word changes it. */
static uint64_t sum_of(const void *from, size_t bytes) {
  const uint64_t *w = from;
  uint64_t a = 0xcbf29ce484222325ull, b = 0x9ae16a3b2f90404full;
  size_t n = bytes / 8, i = 0;
  for (; i + 2 <= n; i += 2) {
    a = (a ^ w[i]) * 0x100000001b3ull;
    b = (b ^ w[i + 1]) * 0x100000001b3ull;
  }
  if (i < n)
    a = (a ^ w[i]) * 0x100000001b3ull;
  return a ^ (b << 1 | b >> 63);
}

/* The validator. */

/* Pages of the program that are known to be there: 1 readable, 2 writable. By page number, open addressing. */
#define PAGES (1u << 20)
static uint64_t *pages; /* number << 2 | state */

static void *own_take(size_t bytes) {
  bytes = (bytes + PAGE - 1) & ~(PAGE - 1);
  if (own_used + bytes > OWN)
    sf_stop("a handler reads or writes more memory than a validator can look after", "split the handler");
  void *at = own_memory + own_used;
  own_used += bytes;
  return at;
}

static bool is_own(uintptr_t page) {
  return page - (uintptr_t)shared < sizeof *shared + PAGE || page - (uintptr_t)ring < RING || page - (uintptr_t)own_stack < STACK ||
         page - (uintptr_t)own_memory < OWN || page - ((uintptr_t)context & ~(PAGE - 1)) < sizeof *context + PAGE;
}

static bool readable(uintptr_t page) {
  /* The kernel reads the new set before it looks at what to do with it: 22 is EINVAL, 14 EFAULT. */
  return sf_syscall(SYS_rt_sigprocmask, 99, (long)page, 0, 8, 0, 0) == -EINVAL;
}

/* Memory that the program shares with other processes is not the validator's to write: it gets its own in that place. */
static void take_own(uintptr_t from, size_t bytes) {
  sf_syscall(SYS_mmap, (long)from, (long)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

/* There is no /proc to tell what is shared: each page is asked when it is met. */
static bool asks_pages;

/* The kernel makes a second mapping of what is shared, for a length of 0, and refuses to of what is not (mremap(2)). */
static bool is_shared(uintptr_t page) {
  long r = sf_syscall(SYS_mremap, (long)page, 0, PAGE, MREMAP_MAYMOVE, 0, 0);
  if (r == -EINVAL)
    return false;
  if (r < 0 && r > -4096)
    sf_stop("without /proc, what is shared is found by mremap(2), which is refused", "mount /proc in the new root");
  sf_syscall(SYS_munmap, r, PAGE, 0, 0, 0, 0);
  return true;
}

/* The entry of a page, which is there from now on. */
static uint64_t *page_of(uintptr_t at) {
  uint64_t number = at / PAGE;
  static size_t known;
  size_t i = (size_t)(number * 0x9e3779b97f4a7c15ull >> 40) & (PAGES - 1);
  while (pages[i] && pages[i] >> 2 != number)
    i = (i + 1) & (PAGES - 1);
  if (likely(pages[i] != 0))
    return &pages[i];
  if (++known > PAGES / 2) {
    /* Two gigabytes: all is looked up anew. */
    memset(pages, 0, PAGES * sizeof *pages);
    known = 0;
    return page_of(at);
  }
  uintptr_t page = number * PAGE;
  if (is_own(page))
    sf_differ("the first run has touched memory of the runtime", at, 0, 0);
  uint64_t state = 2;
  long r = sf_syscall(SYS_mmap, (long)page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (r != (long)page) {
    if (unlikely(asks_pages) && is_shared(page))
      take_own(page, PAGE);
    state = 1;
    if (!readable(page)) {
      state = 2;
      if (sf_syscall(SYS_mprotect, (long)page, PAGE, PROT_READ | PROT_WRITE, 0, 0, 0) != 0 || !readable(page))
        sf_syscall(SYS_mmap, (long)page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
  }
  pages[i] = number << 2 | state;
  return &pages[i];
}

static void make_writable(uint64_t *page) {
  /* Text and constants are never different, so what comes here is data, however it was mapped when the validator began. */
  if (sf_syscall(SYS_mprotect, (long)(*page >> 2) * (long)PAGE, PAGE, PROT_READ | PROT_WRITE, 0, 0, 0) != 0)
    sf_syscall(SYS_mmap, (long)(*page >> 2) * (long)PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  *page = (*page & ~3ull) | 2;
}

static void put_word(uintptr_t word, uint64_t old) {
  uint64_t *page = page_of(word);
  if (*(volatile uint64_t *)word == old)
    return;
  if (unlikely((*page & 3) != 2))
    make_writable(page);
  *(volatile uint64_t *)word = old;
}

static void put_bytes(uintptr_t at, const uint8_t *from, size_t length) {
  while (length) {
    size_t n = PAGE - (at & (PAGE - 1)), m = n < length ? n : length;
    uint64_t *page = page_of(at);
    if ((*page & 3) != 2)
      make_writable(page);
    sf_copy((void *)at, from, m);
    at += m;
    from += m;
    length -= m;
  }
}

/* Memory as the first run saw it: backwards, so that of several values of a byte the oldest stays. */
static void put_memory(struct sf_context *c) {
  size_t to = c->count, i = c->ranges.used / sizeof(struct sf_range);
  for (;;) {
    struct sf_range *r = i ? (struct sf_range *)c->ranges.base + i - 1 : NULL;
    for (size_t from = r ? r->after : 0; to-- > from;)
      put_word(c->entries[to].where & 0xffffffffffffffull, c->entries[to].old);
    if (!r)
      return;
    to = r->after;
    put_bytes(r->at, c->arena.base + r->old, r->length);
    i--;
  }
}

static uint64_t *table;
static size_t table_slots;

static const void *take(const uint8_t **at, size_t bytes) {
  const void *p = *at;
  *at += (bytes + 7) & ~7ull;
  return p;
}

static void buffer(struct sf_buffer *b, const uint8_t **at, size_t bytes) {
  *b = (struct sf_buffer){.base = (uint8_t *)take(at, bytes), .size = bytes, .used = bytes};
}

static unsigned bit_of(uint64_t v) { return v ? 63u - (unsigned)__builtin_clzll(v) : 0; }

extern _Noreturn void sf_async_on_stack(uintptr_t top, void (*function)(void)); /* below */
__asm__(".text\n"
        ".globl sf_async_on_stack\n"
        ".hidden sf_async_on_stack\n"
        ".type sf_async_on_stack,@function\n"
        "sf_async_on_stack:\n"
        "\tmovq %rdi, %rsp\n"
        "\tandq $-16, %rsp\n"
        "\txorl %ebp, %ebp\n"
        "\tcall *%rsi\n"
        "\tud2\n"
        ".size sf_async_on_stack, .-sf_async_on_stack\n");

static void next_record(void) {
  struct sf_context *c = context;
  uint32_t index = atomic_load_explicit(&shared->validated, memory_order_relaxed);
  for (unsigned i = 0; atomic_load_explicit(&shared->published, memory_order_acquire) == index; i++) {
    if (atomic_load_explicit(&shared->ending, memory_order_relaxed))
      sf_leave(0);
    if (i < SPINS) {
      pause_a_little();
      continue;
    }
    uint32_t bell = atomic_load(&shared->bell);
    atomic_store(&shared->sleeps_validator, 1);
    if (atomic_load(&shared->published) == index && !atomic_load(&shared->ending))
      futex_wait(&shared->bell, bell);
    atomic_store(&shared->sleeps_validator, 0);
  }
  struct record *r = (struct record *)(ring + shared->place[index % LAG_MAX]);
  c->handler = r->handler;
  c->event = r->event;
  shared->handler = r->handler;
  shared->event = r->event;
  atomic_store(&shared->busy, 1);
  __sf_tls.phase = SF_E2;
  if (r->bytes > RING || sum_of((uint8_t *)r + 8, r->bytes - 8) != r->sum)
    sf_differ("a record has changed on its way to the validator", (uint64_t)r, r->sum, 0);
  const uint8_t *at = (const uint8_t *)(r + 1);
  c->count = c->capacity = r->count;
  c->entries = (struct sf_entry *)take(&at, r->count * sizeof *c->entries);
  c->news = (uint64_t *)take(&at, r->count * sizeof *c->news);
  buffer(&c->ranges, &at, r->ranges);
  buffer(&c->arena, &at, r->arena);
  buffer(&c->queue, &at, r->queue);
  buffer(&c->deferred, &at, r->deferred);
  buffer(&c->parts, &at, r->parts);
  c->result_first = r->result;
  c->mxcsr = (uint32_t)r->mxcsr;
  c->mxcsr_first = (uint32_t)r->mxcsr_first;
  c->errno_begin = (int)r->errno_begin;
  c->message_count = r->message_count;
  c->message_cursor = r->message_cursor;
  c->ignored_count = r->ignored_count;
  memcpy(c->messages, take(&at, r->message_count * sizeof *c->messages), r->message_count * sizeof *c->messages);
  memcpy(c->ignored, take(&at, r->ignored_count * sizeof *c->ignored), r->ignored_count * sizeof *c->ignored);
  put_memory(c);
  put_bytes(r->kept[7] + 8, at, r->frame);
  put_bytes(r->kept[7], (const uint8_t *)&r->kept[6], 8);
  memcpy(__sf_tls.kept, r->kept, sizeof r->kept);
  __sf_tls.stack_low = r->stack_low;
  __sf_tls.stack_length = c->run_bytes = r->stack_length;
  size_t slots = table_slots ? table_slots : SF_SLOTS;
  while (slots < 5 * c->count) /* as SF_SLOTS to SF_WORDS */
    slots *= 2;
  if (slots != table_slots) {
    table = own_take(slots * 9);
    table_slots = slots;
    c->epoch = SF_EPOCH_FIRST;
  }
  sf_async_second(c, table_slots, table);
}

void sf_async_validated(struct sf_context *c) {
  uint32_t index = atomic_load_explicit(&shared->validated, memory_order_relaxed);
  struct record *r = (struct record *)(ring + shared->place[index % LAG_MAX]);
  shared->behind[bit_of(atomic_load(&shared->published) - index)]++;
  uint64_t now = __builtin_ia32_rdtsc();
  shared->delay[bit_of(now > r->tsc ? now - r->tsc : 0)]++;
  c->epoch += 2;
  sf_gates_close(c, c->event);
  __sf_tls.phase = SF_OUTSIDE;
  atomic_store(&shared->busy, 0);
  atomic_store(&shared->validated, index + 1);
  if (atomic_load(&shared->sleeps_thread))
    futex_wake(&shared->validated);
  sf_async_on_stack((uintptr_t)own_stack + STACK - 64, next_record);
}

/* Once a second of the validator's own time. */
static void tick(int number) {
  (void)number;
  static uint32_t last, times;
  uint32_t index = atomic_load(&shared->validated);
  times = atomic_load(&shared->busy) && index == last ? times + 1 : 0;
  last = index;
  if (times >= ENDLESS)
    sf_differ_name("the second run does not end in", context->handler->name, 0, times);
}

static void leave_shared_memory(void) {
  static char text[1 << 16];
  int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  asks_pages = fd < 0;
  if (asks_pages)
    return;
  size_t have = 0;
  for (;;) {
    ssize_t got = read(fd, text + have, sizeof text - 1 - have);
    if (got <= 0 && have == 0)
      break;
    have += got > 0 ? (size_t)got : 0;
    size_t done = 0;
    for (size_t i = 0; i < have; i++) {
      if (text[i] != '\n')
        continue;
      const char *s = text + done;
      done = i + 1;
      uintptr_t range[2] = {0};
      for (int k = 0; k < 2; k++, s++)
        for (; (*s >= '0' && *s <= '9') || (*s >= 'a' && *s <= 'f'); s++)
          range[k] = range[k] * 16 + (uintptr_t)(*s <= '9' ? *s - '0' : *s - 'a' + 10);
      if (s[3] == 's' && !is_own(range[0]))
        take_own(range[0], range[1] - range[0]);
    }
    if (done == 0)
      break; /* a line longer than any */
    memmove(text, text + done, have - done);
    have -= done;
    if (got <= 0)
      break;
  }
  close(fd);
}

static _Noreturn void validator(pid_t parent) {
  sf_syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0);
  if ((pid_t)sf_syscall(SYS_getppid, 0, 0, 0, 0, 0, 0) != parent)
    sf_leave(0);
  sf_syscall(SYS_prctl, PR_SET_NAME, (long)"sf-validator", 0, 0, 0, 0);
  /* From here on in the place of the thread whose handlers they are: its thread-local variables at their addresses. */
  sf_syscall(SYS_arch_prctl, 0x1002 /* ARCH_SET_FS */, (long)thread_base, 0, 0, 0, 0);
  uint64_t mask = ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) | 1ull << (SIGFPE - 1) | 1ull << (SIGILL - 1) |
                    1ull << (SIGTRAP - 1) | 1ull << (SIGABRT - 1) | 1ull << (SIGSYS - 1) | 1ull << (SIGVTALRM - 1));
  sf_syscall(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, 8, 0, 0);
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_handler = SIG_DFL;
  for (int i = 1; i < 32; i++)
    sigaction(i, &a, NULL); /* the program's own handlers are not for it */
  a.sa_handler = tick;
  a.sa_flags = SA_ONSTACK;
  stack_t alternate = {.ss_sp = own_take(64 << 10), .ss_size = 64 << 10};
  sigaltstack(&alternate, NULL);
  sigaction(SIGVTALRM, &a, NULL);
  struct itimerval second = {{1, 0}, {1, 0}};
  sf_syscall(SYS_setitimer, ITIMER_VIRTUAL, (long)&second, 0, 0, 0, 0);
  struct rlimit none = {0, 0};
  sf_syscall(SYS_setrlimit, RLIMIT_CORE, (long)&none, 0, 0, 0, 0);
  leave_shared_memory();
  /* 2 stays: what it has to say. Closing here closes nothing for the program. */
  sf_syscall(SYS_close_range, 0, 1, 0, 0, 0, 0);
  if (sf_syscall(SYS_close_range, 3, ~0u, 0, 0, 0, 0) != 0)
    for (int fd = 3; fd < 65536; fd++)
      sf_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
  sf_syscall(SYS_sched_setaffinity, 0, sizeof there, (long)&there, 0, 0, 0);
  pages = own_take(PAGES * sizeof *pages);
  sf_async_on_stack((uintptr_t)own_stack + STACK - 64, next_record);
}

/* The program's side. */

static struct sf_context told;

void __sf_async_leaves(void);

static _Noreturn void ended(const siginfo_t *how) {
  if (how->si_code == CLD_EXITED && (how->si_status == 121 || how->si_status == 122 || how->si_status == 123))
    sf_leave(how->si_status); /* it has said why */
  bool busy = atomic_load(&shared->busy);
  told.handler = shared->handler;
  told.event = shared->event;
  __sf_own = &told;
  __sf_tls.phase = SF_E2; /* of which is told */
  if (busy && told.handler)
    sf_tell(how->si_code == CLD_EXITED ? "the second run has ended the validator, by status"
                                       : "the second run has crashed, by signal",
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
    validator(parent);
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
  if (r == 0 && !(atomic_load(&shared->ending) && how.si_code == CLD_EXITED && how.si_status == 0))
    ended(&how);
  return NULL;
}

static void *reserve(size_t bytes, int how) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    sf_stop("memory for validation is needed, the kernel gives none", "raise the memory limit of the process (ulimit -v)");
  return at;
}

static void drop(void) {
  if (!shared)
    return;
  munmap(shared, sizeof *shared);
  munmap(ring, RING);
  munmap(own_memory, OWN);
  munmap(own_stack, STACK);
  shared = NULL;
}

static void before_fork(void) { sf_async_hold(); }
static void forked(void) {
  /* The child has no validator, and gets its own with its first handler. */
  drop();
  owner = 0;
}

static void start(struct sf_context *c) {
  static bool watches_forks;
  if (!watches_forks)
    pthread_atfork(before_fork, NULL, forked);
  watches_forks = true;
  context = c;
  thread_base = (uint64_t)__builtin_thread_pointer();
  owner = (pid_t)sf_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
  shared = reserve(sizeof *shared, MAP_SHARED);
  ring = reserve(RING, MAP_SHARED);
  own_memory = reserve(OWN, MAP_PRIVATE);
  own_stack = reserve(STACK, MAP_PRIVATE);
  own_used = head = 0;
  table_slots = 0;
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

__attribute__((constructor(105))) static void prepare(int argc, char **argv, char **environment) {
  (void)argc, (void)argv;
  cpu_set_t here;
  sf_share_out(&here, &there, WHY, FIX_CPUS);
  if (sched_setaffinity(0, sizeof here, &here) != 0)
    sf_stop(WHY ", and threads cannot be bound to cores", FIX_CPUS);
  uintptr_t asked = (uintptr_t)__sf_async_lag - (uintptr_t)__sf_async_none;
  lag = asked < LAG_MAX ? (uint32_t)asked : LAG_MAX;
  static const char name[] = "STEADFAST_LAG=";
  for (char **e = environment; e && *e; e++)
    if (sf_length(*e) >= sizeof name - 1 && sf_equal(*e, name, sizeof name - 1))
      lag_file = *e + sizeof name - 1;
}

void sf_async_begin(struct sf_context *c, const struct sf_handler *h) {
  if (unlikely(!shared))
    start(c);
  if (unlikely(thread_base != (uint64_t)__builtin_thread_pointer()))
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
static uint8_t *room(size_t bytes) {
  if (bytes > RING)
    sf_stop("a handler reads or writes more memory than the ring of records holds (64 MiB)", "split the handler");
  for (;;) {
    uint32_t done = atomic_load_explicit(&shared->validated, memory_order_acquire);
    uint32_t next = atomic_load_explicit(&shared->published, memory_order_relaxed);
    if (done == next) {
      if (unlikely(head > RING / 16)) {
        /* What a burst has used goes back. */
        madvise(ring + RING / 16, RING - RING / 16, MADV_REMOVE);
      }
      head = 0;
      return ring;
    }
    if (next - done < lag) {
      size_t oldest = shared->place[done % LAG_MAX];
      if (head > oldest) {
        if (bytes <= RING - head)
          return ring + head;
        if (bytes <= oldest) {
          head = 0;
          return ring;
        }
      } else if (bytes < oldest - head) {
        return ring + head;
      }
    }
    wait_validated(done + 1);
  }
}

static void *put(uint8_t **at, const void *from, size_t bytes) {
  void *to = *at;
  if (bytes == 0)
    return to;
  if (bytes & 7)
    *(uint64_t *)(*at + (bytes & ~7ull)) = 0;
  sf_copy(to, from, bytes);
  *at += (bytes + 7) & ~7ull;
  return to;
}

void sf_async_publish(struct sf_context *c) {
  if (unlikely(c->locks.used))
    sf_stop("a handler takes a lock, and --validate=async keeps no order of locks", "link without --validate=async");
  if (unlikely(c->split_state))
    sf_stop("a handler waits for a condition, and --validate=async keeps no order of locks", "link without --validate=async");
  size_t all = sizeof(struct record) + sizeof c->messages + sizeof c->ignored + c->count * 24 + c->ranges.used + c->arena.used + c->queue.used + c->deferred.used + c->parts.used + frame_bytes + 7 * 8;
  uint8_t *begin = room(all), *at = begin + sizeof(struct record);
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
  put(&at, c->entries, c->count * sizeof *c->entries);
  uint64_t *news = (uint64_t *)at;
  for (size_t i = 0; i < c->count; i++) {
    uint64_t where = c->entries[i].where;
    news[i] = where >> 56 == 0xff ? 0 : *(volatile uint64_t *)(where & 0xffffffffffffffull);
  }
  at += c->count * 8;
  struct sf_range *ranges = (struct sf_range *)c->ranges.base;
  for (size_t i = 0; i < c->ranges.used / sizeof *ranges; i++)
    sf_copy(c->arena.base + ranges[i].old + ranges[i].length, (void *)ranges[i].at, ranges[i].length);
  put(&at, ranges, c->ranges.used);
  put(&at, c->arena.base, c->arena.used);
  put(&at, c->queue.base, c->queue.used);
  put(&at, c->deferred.base, c->deferred.used);
  put(&at, c->parts.base, c->parts.used);
  put(&at, c->messages, c->message_count * sizeof *c->messages);
  put(&at, c->ignored, c->ignored_count * sizeof *c->ignored);
  put(&at, frame_kept, frame_bytes);
  r->bytes = (uint64_t)(at - begin);
  r->tsc = __builtin_ia32_rdtsc();
  r->sum = sum_of(begin + 8, r->bytes - 8);
  uint32_t index = atomic_load_explicit(&shared->published, memory_order_relaxed);
  shared->place[index % LAG_MAX] = (uint64_t)(begin - ring);
  head = (size_t)(at - ring);
  atomic_store(&shared->published, index + 1);
  if (unlikely(atomic_load(&shared->sleeps_validator)))
    ring_bell();
}

/* With --hold-output: what leaves by the handler itself waits. Memory that it frees is its own affair. */
void sf_async_before_effects(struct sf_context *c) {
  if (!holds())
    return;
  struct sf_deferred *d = (struct sf_deferred *)c->deferred.base, *end = (struct sf_deferred *)(c->deferred.base + c->deferred.used);
  for (; d != end; d++)
    if (d->last == 0) {
      wait_all();
      return;
    }
}

/* The end. */

static void put_number(char **to, uint64_t v) {
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
      uint64_t n = k ? shared->delay[i] : shared->behind[i];
      if (n == 0)
        continue;
      memcpy(to, k ? "delay  " : "behind ", 7);
      to += 7;
      put_number(&to, i);
      *to++ = ' ';
      put_number(&to, n);
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
  if (!shared || !is_owner())
    return;
  wait_validated(atomic_load(&shared->published));
  if (lag_file)
    write_lag();
  atomic_store(&shared->ending, 1);
  ring_bell();
  pthread_join(watching, NULL);
  drop();
  owner = 0;
}

/* A program that ends without its exit handlers (leave.c). */
void __sf_async_leaves(void) {
  if (shared && is_owner())
    wait_validated(atomic_load(&shared->published));
}
