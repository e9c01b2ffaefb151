/*
 * The validator of --validate=async (async.c): a process that takes records from the ring, puts what the first run saw into its own memory,
 * and goes on in the driver where a second run begins.
 *
 * Not covered: without /proc, pages that the program shares with others and that no record names (docs/reference/limits-cc.md).
 */
#define _GNU_SOURCE
#include "async.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

/* Pages of the program that are known to be there: 1 readable, 2 writable. By page number, open addressing. */
#define PAGES (1u << 20)
static uint64_t *pages; /* number << 2 | state */

static void *own_take(size_t bytes) {
  bytes = (bytes + PAGE - 1) & ~(PAGE - 1);
  if (sf_later.own_used + bytes > OWN)
    sf_stop("a handler reads or writes more memory than a validator can look after", "split the handler");
  void *at = sf_later.own_memory + sf_later.own_used;
  sf_later.own_used += bytes;
  return at;
}

static bool is_own(uintptr_t page) {
  const struct sf_later *l = &sf_later;
  return page - (uintptr_t)l->shared < sizeof *l->shared + PAGE || page - (uintptr_t)l->ring < RING ||
         page - (uintptr_t)l->own_stack < STACK || page - (uintptr_t)l->own_memory < OWN ||
         page - ((uintptr_t)l->context & ~(PAGE - 1)) < sizeof *l->context + PAGE;
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
static uint64_t *page_of_validator(uintptr_t at) {
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
    return page_of_validator(at);
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
  uint64_t *page = page_of_validator(word);
  if (*(volatile uint64_t *)word == old)
    return;
  if (unlikely((*page & 3) != 2))
    make_writable(page);
  *(volatile uint64_t *)word = old;
}

static void put_bytes_validator(uintptr_t at, const uint8_t *from, size_t length) {
  while (length) {
    size_t n = PAGE - (at & (PAGE - 1)), m = n < length ? n : length;
    uint64_t *page = page_of_validator(at);
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
    put_bytes_validator(r->at, c->arena.base + r->old, r->length);
    i--;
  }
}

static uint64_t *table;

static const void *take_validator(const uint8_t **at, size_t bytes) {
  const void *p = *at;
  *at += (bytes + 7) & ~7ull;
  return p;
}

static void buffer(struct sf_buffer *b, const uint8_t **at, size_t bytes) {
  *b = (struct sf_buffer){.base = (uint8_t *)take_validator(at, bytes), .size = bytes, .used = bytes};
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
  struct sf_context *c = sf_later.context;
  uint32_t index = atomic_load_explicit(&sf_later.shared->validated, memory_order_relaxed);
  for (unsigned i = 0; atomic_load_explicit(&sf_later.shared->published, memory_order_acquire) == index; i++) {
    if (atomic_load_explicit(&sf_later.shared->ending, memory_order_relaxed))
      sf_leave(0);
    if (i < SPINS) {
      pause_a_little();
      continue;
    }
    uint32_t bell = atomic_load(&sf_later.shared->bell);
    atomic_store(&sf_later.shared->sleeps_validator, 1);
    if (atomic_load(&sf_later.shared->published) == index && !atomic_load(&sf_later.shared->ending))
      futex_wait(&sf_later.shared->bell, bell);
    atomic_store(&sf_later.shared->sleeps_validator, 0);
  }
  struct record *r = (struct record *)(sf_later.ring + sf_later.shared->place[index % LAG_MAX]);
  c->handler = r->handler;
  c->event = r->event;
  sf_later.shared->handler = r->handler;
  sf_later.shared->event = r->event;
  atomic_store(&sf_later.shared->busy, 1);
  __sf_tls.phase = SF_E2;
  if (r->bytes > RING || sum_of((uint8_t *)r + 8, r->bytes - 8) != r->sum)
    sf_differ("a record has changed on its way to the validator", (uint64_t)r, r->sum, 0);
  const uint8_t *at = (const uint8_t *)(r + 1);
  c->count = c->capacity = r->count;
  c->entries = (struct sf_entry *)take_validator(&at, r->count * sizeof *c->entries);
  c->news = (uint64_t *)take_validator(&at, r->count * sizeof *c->news);
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
  memcpy(c->messages, take_validator(&at, r->message_count * sizeof *c->messages), r->message_count * sizeof *c->messages);
  memcpy(c->ignored, take_validator(&at, r->ignored_count * sizeof *c->ignored), r->ignored_count * sizeof *c->ignored);
  put_memory(c);
  put_bytes_validator(r->kept[7] + 8, at, r->frame);
  put_bytes_validator(r->kept[7], (const uint8_t *)&r->kept[6], 8);
  memcpy(__sf_tls.kept, r->kept, sizeof r->kept);
  __sf_tls.stack_low = r->stack_low;
  __sf_tls.stack_length = c->run_bytes = r->stack_length;
  size_t slots = sf_later.slots ? sf_later.slots : SF_SLOTS;
  while (slots < 5 * c->count) /* as SF_SLOTS to SF_WORDS */
    slots *= 2;
  if (slots != sf_later.slots) {
    table = own_take(slots * 9);
    sf_later.slots = slots;
    c->epoch = SF_EPOCH_FIRST;
  }
  sf_async_second(c, sf_later.slots, table);
}

void sf_async_validated(struct sf_context *c) {
  uint32_t index = atomic_load_explicit(&sf_later.shared->validated, memory_order_relaxed);
  struct record *r = (struct record *)(sf_later.ring + sf_later.shared->place[index % LAG_MAX]);
  sf_later.shared->behind[bit_of(atomic_load(&sf_later.shared->published) - index)]++;
  uint64_t now = __builtin_ia32_rdtsc();
  sf_later.shared->delay[bit_of(now > r->tsc ? now - r->tsc : 0)]++;
  c->epoch += 2;
  sf_gates_close(c, c->event);
  __sf_tls.phase = SF_OUTSIDE;
  atomic_store(&sf_later.shared->busy, 0);
  atomic_store(&sf_later.shared->validated, index + 1);
  if (atomic_load(&sf_later.shared->sleeps_thread))
    futex_wake(&sf_later.shared->validated);
  sf_async_on_stack((uintptr_t)sf_later.own_stack + STACK - 64, next_record);
}

/* Once a second of the validator's own time. */
static void tick(int number) {
  (void)number;
  static uint32_t last, times;
  uint32_t index = atomic_load(&sf_later.shared->validated);
  times = atomic_load(&sf_later.shared->busy) && index == last ? times + 1 : 0;
  last = index;
  if (times >= ENDLESS)
    sf_differ_name("the second run does not end in", sf_later.context->handler->name, 0, times);
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

void sf_validator(pid_t parent) {
  sf_syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0);
  if ((pid_t)sf_syscall(SYS_getppid, 0, 0, 0, 0, 0, 0) != parent)
    sf_leave(0);
  sf_syscall(SYS_prctl, PR_SET_NAME, (long)"sf-validator", 0, 0, 0, 0);
  /* From here on in the place of the thread whose handlers they are: its thread-local variables at their addresses. */
  sf_syscall(SYS_arch_prctl, 0x1002 /* ARCH_SET_FS */, (long)sf_later.thread_base, 0, 0, 0, 0);
  uint64_t mask = ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) | 1ull << (SIGFPE - 1) | 1ull << (SIGILL - 1) | 1ull << (SIGTRAP - 1) |
                    1ull << (SIGABRT - 1) | 1ull << (SIGSYS - 1) | 1ull << (SIGVTALRM - 1));
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
  sf_syscall(SYS_sched_setaffinity, 0, sizeof sf_later.there, (long)&sf_later.there, 0, 0, 0);
  pages = own_take(PAGES * sizeof *pages);
  sf_async_on_stack((uintptr_t)sf_later.own_stack + STACK - 64, next_record);
}
