/*
 * A handler that waits for a condition: it ends at the wait and goes on as a handler of its own.
 *
 *     first run comes to the wait    its frames and registers are kept, R (__sf_mid), and the second run begins
 *     second run comes to the wait   its own are kept, V (__sf_end): the first half is committed, its effects happen
 *     the wait itself                once, outside handlers, by the thread that holds the mutex
 *     after it                       phase I; the first run goes on in the frames of the first run, and after R the
 *                                    second run in those of the second
 *
 * Locals are thus never shared between the runs: what a fault does to them before, during or after the wait makes the runs
 * differ. They are not compared as bytes, as frames hold leftovers of what was called before.
 *
 * Invariants
 *  1. Both runs wait for the same condition with the same mutex at the same place, or none does.
 *  2. A run goes on in frames at the addresses where they were: pointers to locals stay good.
 *  3. Kept frames change only by what other threads have written there during the wait, and both runs get that.
 *
 * Not covered (docs/reference/limits-cc.md): other threads that write into a handler's frames while it runs; waiting inside a catch
 * block or in the middle of a message that is being put together: refused when it happens.
 */
#define _GNU_SOURCE
#include "wrapper.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

/* As .Lwait of store.S lays them down. */
struct registers {
  uint64_t rbx, rbp, r12, r13, r14, r15;
  uintptr_t sp; /* where the return address lies */
};

/* A run at a wait. */
struct frames {
  struct registers registers;
  struct sf_buffer stack; /* from sp up to the driver's frame pointer */
};

struct sf_split {
  struct frames at[2][2]; /* the last wait, the next one; by run */
  unsigned last;
  int result;
  size_t ignored; /* c->ignored_count when the half began */
  uint64_t place[6];
};

/* What the program called. */
enum { WAIT, TIMED, CLOCKED, C11, C11_TIMED };

extern _Noreturn void sf_second(void);
extern _Noreturn void sf_split_jump(const void *stack, int result, size_t length, const struct registers *);
extern void **__cxa_get_globals(void) __attribute__((weak));

static uintptr_t driver_frame(void) { return __sf_tls.kept[1]; }

static struct sf_split *split_of(struct sf_context *c) {
  if (!c->split)
    c->split = sf_map(sizeof *c->split);
  return c->split;
}

void sf_split_free(struct sf_context *c) {
  if (!c->split)
    return;
  for (int i = 0; i < 4; i++)
    if (c->split->at[i / 2][i % 2].stack.base)
      sf_unmap(c->split->at[i / 2][i % 2].stack.base, c->split->at[i / 2][i % 2].stack.size);
  sf_unmap(c->split, sizeof *c->split);
  c->split = NULL;
}

static void keep_split(struct sf_context *c, struct frames *f, const struct registers *r) {
  uintptr_t top = driver_frame();
  if (unlikely(top <= r->sp || top > c->stack_high || r->sp < c->stack_low))
    sf_differ_name("control flow: a handler waits outside its driver's frame", c->handler->name, r->sp, top);
  f->registers = *r;
  f->stack.used = 0;
  void *to = sf_grow(&f->stack, top - r->sp);
  sf_copy(to, (void *)r->sp, top - r->sp);
}

static _Noreturn void go_on(const struct sf_split *s, unsigned run) {
  const struct frames *f = &s->at[s->last][run];
  sf_split_jump(f->stack.base, s->result, f->stack.used, &f->registers);
}

void sf_split_second(struct sf_context *c) {
  if (c->split_state & SF_SPLIT_HALF)
    go_on(c->split, 1);
  sf_second();
}

void sf_split_again(struct sf_context *c) {
  c->split_state = SF_SPLIT_HALF;
  c->ignored_count = c->split->ignored;
  sf_begin_half(c);
  go_on(c->split, 0);
}

/* What other threads have written into these frames since `before` was kept: the value of a request that lay there. */
static void adopt(struct frames *first, struct frames *second) {
  const volatile uint8_t *live = (const volatile uint8_t *)second->registers.sp;
  uint8_t *a = first->stack.base, *b = second->stack.base;
  if (sf_equal((const void *)live, b, second->stack.used))
    return;
  for (size_t i = 0; i < second->stack.used; i++)
    if (live[i] != b[i])
      a[i] = b[i] = live[i];
}

/* Messages that the second half can still check: what the first half frees is not looked at again. */
static size_t messages_left(struct sf_context *c, struct sf_message *left) {
  size_t n = 0;
  struct sf_deferred *d = (struct sf_deferred *)c->deferred.base;
  size_t effects = c->deferred.used / sizeof *d;
  for (size_t i = 0; i < c->message_count; i++) {
    uintptr_t at = (uintptr_t)c->messages[i].bytes;
    bool freed = false;
    for (size_t k = 0; k < effects; k++)
      freed |= d[k].function == (void *)free && d[k].last == 1 && at - d[k].arguments[0] < malloc_usable_size((void *)d[k].arguments[0]);
    if (!freed)
      left[n++] = c->messages[i];
  }
  return n;
}

static int really(int kind, void *cond, void *mutex, const struct timespec *until, int clock) {
  switch (kind) {
  case TIMED:
    return pthread_cond_timedwait(cond, mutex, until);
  case CLOCKED:
    return pthread_cond_clockwait(cond, mutex, clock, until);
  case C11:
    return cnd_wait(cond, mutex);
  case C11_TIMED:
    return cnd_timedwait(cond, mutex, until);
  default:
    return pthread_cond_wait(cond, mutex);
  }
}

_Noreturn void sf_wait(void *cond, void *mutex, const struct timespec *until, int clock, const struct registers *r, int kind) {
  INSIDE;
  struct sf_split *s = split_of(c);
  uint64_t deadline = until ? sf_mix((uint64_t)until->tv_sec, (uint64_t)until->tv_nsec) : 0;
  uint64_t place[6] = {(uint64_t)cond, (uint64_t)mutex, deadline, sf_mix((uint64_t)kind, (uint64_t)clock), r->sp, *(const uint64_t *)r->sp};
  uint64_t token = __sf_hash(place, sizeof place);
  struct frames *next = s->at[1 - s->last];
  if (FIRST) {
    if (!sf_lock_held(c, mutex))
      sf_differ("a handler waits with a lock that this thread does not hold", (uint64_t)mutex, 0, 0);
    if (c->parts.used && !((struct sf_part *)(c->parts.base + c->parts.used) - 1)->last)
      sf_stop("a handler waits for a condition while a message is being put together",
              "end the message with sf_output_done before the wait");
    if (__cxa_get_globals && *__cxa_get_globals())
      sf_stop("a handler waits for a condition inside a catch block", "leave the catch block first");
    keep_split(c, &next[0], r);
    sf_copy(s->place, place, sizeof place);
    c->split_state |= SF_SPLIT_WAITS & 2;
    __sf_mid(c->handler, token);
    sf_bug("the first half of a handler has no second run");
  }
  if (unlikely((c->split_state & SF_SPLIT_WAITS) != (SF_SPLIT_WAITS & 2)))
    sf_differ("only the second run waits for the condition", (uint64_t)cond, 0, 1);
  for (int i = 0; i < 6; i++)
    if (unlikely(s->place[i] != place[i]))
      sf_differ("the runs wait for different conditions, or at different places", (uint64_t)cond, s->place[i], place[i]);
  keep_split(c, &next[1], r);
  c->split_state |= SF_SPLIT_WAITS;
  struct sf_message left[SF_MESSAGES];
  size_t messages = messages_left(c, left), ignored = c->ignored_count;
  struct timespec end = until ? *until : (struct timespec){0};
  __sf_end(c->handler, token);

  /* The first half has happened. Its messages are from now on as it has left them: it may have cut them into words. */
  for (size_t i = 0; i < messages; i++)
    left[i].crc = sf_crc32c(0, left[i].bytes, left[i].length);
  sf_lock_shown(c, mutex, false);
  s->result = really(kind, cond, mutex, until ? &end : NULL, clock);
  sf_lock_shown(c, mutex, true);
  adopt(&next[0], &next[1]);
  s->last = 1 - s->last;
  for (size_t i = 0; i < messages; i++)
    c->messages[i] = left[i];
  c->message_count = messages;
  c->ignored_count = s->ignored = ignored;
  for (size_t i = 0; i < ignored; i++)
    c->ignored[i].after = 0; /* of this half's ranges */
  c->split_state = SF_SPLIT_HALF;
  sf_begin_half(c);
  go_on(s, 0);
}
