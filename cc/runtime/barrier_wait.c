/* Waiting for other threads' handlers before bytes leave: sf_barrier, and what --barrier asks (barrier.c). */
#include "runtime.h"

#include <stdatomic.h>

/* The checking barrier (Section 4.2): every thread that was inside a handler when this one was first asked after its
   last handler has left that handler since. A thread that does not leave for a second (it waits for input or a lock) is
   no longer waited for: one that blocks must not hold back all others. */
#define BARRIER_NS 1000000000ull

struct wait {
  struct sf_context *on;
  uint64_t counter;
};

static uint64_t now_ns(void) {
  uint64_t t[2];
  sf_syscall(228 /* clock_gettime */, 1 /* MONOTONIC */, (long)t, 0, 0, 0, 0);
  return t[0] * 1000000000ull + t[1];
}

SF_API int sf_barrier(void) {
  struct sf_context *own = sf_context();
  if (__sf_tls.phase != SF_OUTSIDE)
    sf_stop("sf_barrier belongs after a handler, found inside one", "call it before the handler's bytes are sent");
  if (own->barrier_event != own->event) {
    own->barrier_event = own->event;
    own->waits.used = 0;
    atomic_thread_fence(memory_order_seq_cst);
    for (struct sf_context *c = atomic_load(&sf_contexts); c; c = c->next) {
      uint64_t counter = atomic_load(&c->counter);
      if (c != own && counter & 1)
        *(struct wait *)sf_grow(&own->waits, sizeof(struct wait)) = (struct wait){c, counter};
    }
    if (own->waits.used)
      own->barrier_since = now_ns();
  }
  struct wait *w = (struct wait *)own->waits.base;
  size_t n = own->waits.used / sizeof *w, kept = 0;
  for (size_t i = 0; i < n; i++)
    if (atomic_load_explicit(&w[i].on->counter, memory_order_acquire) == w[i].counter)
      w[kept++] = w[i];
  own->waits.used = kept * sizeof *w;
  if (kept && now_ns() - own->barrier_since > BARRIER_NS)
    own->waits.used = 0;
  return own->waits.used == 0;
}

/* --barrier (barrier.c): the same for a program that does not ask, which waits here. Threads are looked at one after the
   other, so nothing is kept and a thread without a handler needs no context. What a handler's own effects send is not
   held: others may wait for the locks that its thread still has. */
#define BARRIER_SPINS 64

void sf_barrier_wait(void) {
  const struct sf_context *own = __sf_own;
  if (__sf_tls.phase != SF_OUTSIDE || (own && atomic_load_explicit(&own->counter, memory_order_relaxed) & 1))
    return;
  atomic_thread_fence(memory_order_seq_cst);
  uint64_t since = 0;
  for (struct sf_context *c = atomic_load(&sf_contexts); c; c = c->next) {
    uint64_t counter = atomic_load(&c->counter);
    for (unsigned looks = 1; counter & 1 && atomic_load_explicit(&c->counter, memory_order_acquire) == counter; looks++) {
      __builtin_ia32_pause();
      if (looks % BARRIER_SPINS)
        continue;
      sf_syscall(24 /* sched_yield */, 0, 0, 0, 0, 0, 0);
      if (!since)
        since = now_ns();
      else if (now_ns() - since > BARRIER_NS)
        return;
    }
  }
}
