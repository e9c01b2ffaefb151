/*
 * Handlers that wait for each other's locks.
 *
 * A handler keeps what the program has already unlocked (locks.c), so that handlers may come to wait for each other in a
 * circle though the program's own order of locks is sound. Whoever closes the circle sees it at once and gives way: it is
 * rolled back, unlocks, and begins again when the handler that it was in the way of has ended.
 *
 *     take fails ── publish what is waited for, look for a circle ── none: wait
 *                                                               └── found: sf_give_way ── sf_wait_end ── begin again
 *
 * Why somebody always gets on: who has given way holds nothing and so is in nobody's way; it waits for one that held
 * something when it was asked, and which can itself only be waiting for others that hold something. Each circle thus turns
 * one handler that holds into one that does not, and the last that is left ends, which wakes those that wait for it.
 *
 * Invariants
 *  1. A circle is looked for, and who gives way has withdrawn from it, under `graph`: two never give way to each other.
 *  2. What is published of a lock may lag behind (a lock just taken or given up): who waits last sees all others, since
 *     each has published what it holds before it came here. One that is thought to be held too long costs a needless
 *     repetition, no more.
 *
 * Not covered: threads that hold a lock outside handlers are not known. Where a wait ends at such a one, time decides
 * (locks.c): the handler gives way after a while, since that thread may be waiting for what it keeps.
 */
#include "runtime.h"

#include <stdatomic.h>

static _Atomic uint32_t graph;

static void enter(void) {
  /* Held for a walk over a few contexts: not worth a wait in the kernel. */
  for (unsigned tries = 1; atomic_exchange_explicit(&graph, 1, memory_order_acquire); tries++)
    if (tries % 64 == 0)
      sf_syscall(24 /* sched_yield */, 0, 0, 0, 0, 0, 0);
    else
      __builtin_ia32_pause();
}

static void leave_waits(void) { atomic_store_explicit(&graph, 0, memory_order_release); }

static bool has(struct sf_context *c, const void *lock) {
  for (size_t i = 0; i < SF_HOLDS; i++)
    if (atomic_load_explicit(&c->holds[i], memory_order_relaxed) == lock)
      return true;
  return false;
}

/* Breadth first from `own`. Fills in the first handler on a circle which own can break, and whether a way ends at a lock
   whose holder is not known. Fields of the walk are protected by `graph`. */
static void walk_waits(struct sf_context *own, struct sf_waited *found) {
  static uint64_t walks;
  struct sf_context *last = own;
  own->walk = ++walks;
  own->walk_next = NULL;
  for (struct sf_context *at = own; at; at = at->walk_next) {
    const void *lock = atomic_load(&at->waiting);
    if (!lock)
      continue; /* at work: it will get on by itself */
    bool known = false;
    for (struct sf_context *c = atomic_load(&sf_contexts); c; c = c->next) {
      uint32_t ends = atomic_load(&c->ends); /* before what it holds: an older number is not waited for */
      if (c == at || !has(c, lock))
        continue;
      if (c == own) {
        if (sf_lock_is_fresh(own, lock)) {
          found->of = at->walk_first;
          found->ends = at->walk_ends;
          return;
        }
        known = true;
        continue;
      }
      known |= atomic_load(&c->counter) & 1;
      if (c->walk == walks)
        continue;
      c->walk = walks;
      c->walk_first = at == own ? c : at->walk_first;
      c->walk_ends = at == own ? ends : at->walk_ends;
      c->walk_next = NULL;
      last->walk_next = c;
      last = c;
    }
    found->unknown |= !known;
  }
}

struct sf_waited sf_waits(struct sf_context *c, void *lock, bool may_give_way) {
  struct sf_waited found = {0};
  enter();
  atomic_store(&c->waiting, lock);
  walk_waits(c, &found);
  if (!may_give_way)
    found.of = NULL;
  if (found.of)
    sf_waits_no_more(c);
  leave_waits();
  return found;
}

void sf_waits_no_more(struct sf_context *c) { atomic_store_explicit(&c->waiting, NULL, memory_order_release); }

/* A handler has ended and holds nothing of its own any more. */
void sf_wake_waiting(struct sf_context *c) {
  atomic_fetch_add(&c->ends, 1);
  if (atomic_load(&c->watched) && atomic_exchange(&c->watched, 0))
    sf_syscall(202 /* futex */, (long)&c->ends, 129 /* WAKE|PRIVATE */, 0x7fffffff, 0, 0, 0);
}

void sf_wait_end(const struct sf_waited *w) {
  /* The limit is for a wake-up that another waiter's was taken for; who waits looks again. */
  struct {
    long seconds, nanoseconds;
  } limit = {0, 10000000};
  for (;;) {
    atomic_store(&w->of->watched, 1);
    if (atomic_load(&w->of->ends) != w->ends)
      return;
    sf_syscall(202 /* futex */, (long)&w->of->ends, 128 /* WAIT|PRIVATE */, w->ends, (long)&limit, 0, 0);
  }
}
