/*
 * Locks, as hardened code takes and releases them.
 *
 *     take     in the first run (R3); the second is told what the first was told (R8)
 *     release  the program's own count goes down, ownership checked (R4, R9); the lock is kept to the end of V
 *     end      what is locked more often than the program holds it is unlocked
 *     make     a lock that a handler initialises is its own until its end: it is not touched before, since what is put back
 *              between the runs would be the state of a lock that somebody holds
 *
 * Invariants
 *  1. What a handler has locked for the first time, no other thread locks before V has passed.
 *  2. Handlers that would wait for each other for ever do not: waits.c.
 *  3. Which locks a run takes, and how often, depends on the program alone; V compares the counts.
 */
#define _GNU_SOURCE
#include "wrapper.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

enum { MUTEX, READ, WRITE, SPIN, ONCE };

static struct sf_lock *lock_of(struct sf_context *c, void *lock) {
  struct sf_lock *l = (struct sf_lock *)c->locks.base;
  for (size_t n = c->locks.used / sizeof *l; n; n--, l++)
    if (l->lock == lock)
      return l;
  return NULL;
}

typedef int (*taker)(void *lock, const void *until);

static int take_mutex(void *l, const void *t) { return (void)t, pthread_mutex_lock(l); }
static int try_mutex(void *l, const void *t) { return (void)t, pthread_mutex_trylock(l); }
static int timed_mutex(void *l, const void *t) { return pthread_mutex_timedlock(l, t); }
static int take_read(void *l, const void *t) { return (void)t, pthread_rwlock_rdlock(l); }
static int try_read(void *l, const void *t) { return (void)t, pthread_rwlock_tryrdlock(l); }
static int take_write(void *l, const void *t) { return (void)t, pthread_rwlock_wrlock(l); }
static int try_write(void *l, const void *t) { return (void)t, pthread_rwlock_trywrlock(l); }
static int take_spin(void *l, const void *t) { return (void)t, pthread_spin_lock(l); }
static int try_spin(void *l, const void *t) { return (void)t, pthread_spin_trylock(l); }

/* While it keeps locks that the program has released, a handler looks again after this time: for a circle that only it can
   break, and for threads outside handlers, which cannot be seen and may wait for what it keeps. It then begins again
   after a pause that doubles up to 32 ms, as no such thread says when it has got what it waited for. */
#define LOOK_AGAIN_NS 250000
#define PAUSE_NS 125000
#define PAUSE_DOUBLINGS 8
/* Input that was read cannot be read again, and a handler that begins again may want something else: let others give way
   first, for this many looks. */
#define PATIENCE 3

/* A control of pthread_once has the C library's values, so that code outside handlers may use it as well: what stands there while
   somebody is at it (glibc numbers children of fork in it; ThreadSanitizer's has a bit more for who waits), and when it is done. Both are
   looked up in one of our own. */
static __thread pthread_once_t probe;
static __thread int at_it, finished;
static void look_locks(void) { at_it = *(volatile int *)&probe; }

static void look_up(void) {
  probe = PTHREAD_ONCE_INIT;
  pthread_once(&probe, look_locks);
  finished = *(volatile int *)&probe;
}

static int try_once(void *l, const void *t) {
  _Atomic int *control = l;
  int now = atomic_load(control);
  (void)t;
  look_up();
  while (now != finished) {
    if ((now & at_it) == at_it)
      return EBUSY;
    if (atomic_compare_exchange_strong(control, &now, at_it))
      return 0;
  }
  return EALREADY;
}

static int wait_for_once(void *l) {
  int now = atomic_load((_Atomic int *)l);
  if ((now & at_it) == at_it)
    syscall(SYS_futex, l, FUTEX_WAIT_PRIVATE, now, &(struct timespec){0, LOOK_AGAIN_NS}, NULL, 0);
  return try_once(l, NULL);
}

static int take_once(void *l, const void *t) {
  int r = try_once(l, t);
  while (r == EBUSY)
    r = wait_for_once(l);
  return r;
}

/* Unless it is done, it is anybody's again. */
static void leave_once(_Atomic int *control) {
  if (atomic_load(control) != finished)
    atomic_store(control, PTHREAD_ONCE_INIT);
  syscall(SYS_futex, control, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

bool sf_lock_is_fresh(struct sf_context *c, const void *lock) {
  struct sf_lock *l = lock_of(c, (void *)lock);
  return l && l->fresh;
}

/* For others to see (waits.c): what this thread holds, by index. */
static void publish(struct sf_context *c, size_t from, size_t to) {
  struct sf_lock *l = (struct sf_lock *)c->locks.base;
  size_t n = c->locks.used / sizeof *l;
  for (size_t i = from; i < to && i < SF_HOLDS; i++)
    atomic_store_explicit(&c->holds[i], i < n ? l[i].lock : NULL, memory_order_release);
}

static bool has_read(struct sf_context *c) {
  for (size_t i = 0; i < c->queue.used;) {
    struct sf_record *r = (struct sf_record *)(c->queue.base + i);
    if (r->once)
      return true;
    i += sizeof *r + ((r->length + 7) & ~7ull);
  }
  return false;
}

static int try_for_a_while(void *lock, taker take) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  t.tv_nsec += LOOK_AGAIN_NS;
  if (t.tv_nsec >= 1000000000)
    t.tv_sec++, t.tv_nsec -= 1000000000;
  if (take == take_mutex)
    return pthread_mutex_timedlock(lock, &t);
  if (take == take_read)
    return pthread_rwlock_timedrdlock(lock, &t);
  if (take == take_write)
    return pthread_rwlock_timedwrlock(lock, &t);
  if (take == take_once) {
    int r = wait_for_once(lock);
    return r == EBUSY ? ETIMEDOUT : r;
  }
  for (int i = 0; i < 1000; i++) {
    if (pthread_spin_trylock(lock) == 0)
      return 0;
    sched_yield();
  }
  return ETIMEDOUT;
}

static int take_or_give_way(struct sf_context *c, void *lock, taker take, const void *until) {
  taker attempt = take == take_mutex   ? try_mutex
                  : take == take_read  ? try_read
                  : take == take_write ? try_write
                  : take == take_spin  ? try_spin
                  : take == take_once  ? try_once
                                       : NULL;
  /* Who holds nothing is in nobody's way. */
  if (c->locks.used == 0 || until || !attempt)
    return take(lock, until);
  int r = attempt(lock, NULL);
  if (likely(r != EBUSY))
    return r;
  struct sf_lock *l = lock_of(c, lock);
  if (l && l->count)
    return take(lock, until); /* for the C library to judge: again, or a deadlock of the program's own */
  bool keeps = false;
  l = (struct sf_lock *)c->locks.base;
  for (size_t n = c->locks.used / sizeof *l; n; n--, l++)
    keeps |= l->held > l->count;
  unsigned patience = has_read(c) ? PATIENCE : 0;
  for (unsigned looks = 0;; looks++) {
    struct sf_waited w = sf_waits(c, lock, looks >= patience);
    if (w.of || (looks > patience && w.unknown && keeps)) {
      sf_waits_no_more(c);
      unsigned doublings = c->gave_way < PAUSE_DOUBLINGS ? (unsigned)c->gave_way : PAUSE_DOUBLINGS;
      sf_give_way(c, &w, (uint64_t)PAUSE_NS << doublings);
    }
    r = keeps || patience || take == take_spin ? try_for_a_while(lock, take) : take(lock, until);
    if (r != ETIMEDOUT)
      break;
  }
  sf_waits_no_more(c);
  return r;
}

/* A lock that nobody else knows: what the C library would say. */
static int take_made(const struct sf_lock *l, uint32_t kind, taker take) {
  bool again = kind == MUTEX  ? (((pthread_mutex_t *)l->lock)->__data.__kind & 3) == PTHREAD_MUTEX_RECURSIVE
               : kind == READ ? l->kind == READ
                              : false;
  if (l->count == 0 || again)
    return 0;
  return take == try_mutex || take == try_read || take == try_write || take == try_spin ? EBUSY : EDEADLK;
}

/* What locks and unlocks without counting, and has no answer for its owner. */
static bool is_plain(const pthread_mutex_t *m) {
  int kind = m->__data.__kind & 3;
  return kind == PTHREAD_MUTEX_NORMAL || kind == PTHREAD_MUTEX_ADAPTIVE_NP;
}

/* A retry goes on with this list, so a lock is named in it three times. */
#define NAMED(LOCK) .lock = (LOCK), .not_lock = ~(uint64_t)(LOCK), .also = (LOCK)

void sf_locks_mend(struct sf_context *c) {
  struct sf_lock *l = (struct sf_lock *)c->locks.base;
  for (size_t n = c->locks.used / sizeof *l; n; n--, l++)
    if (l->lock != l->also)
      l->lock = l->also = (void *)((uint64_t)l->lock == ~l->not_lock ? l->lock : l->also);
}

/* Another thread that has locked a mutex is named in it some instructions later; this is longer than any that runs waits. */
#define NAMED_NS 10000000

/* A run has crashed while a lock was being taken. Whether it is ours says glibc's word for the owner; where the crash came before
   that was written, that nobody else appears there. A lock for reading, or a spinning one, names nobody. */
void sf_locks_resolve(struct sf_context *c) {
  void *lock = c->taking;
  c->taking = NULL;
  if (!lock)
    return;
  bool ours = false;
  if (c->taking_kind == MUTEX) {
    pthread_mutex_t *m = lock;
    for (int i = 0; i < 10 && m->__data.__lock && !*(volatile int *)&m->__data.__owner; i++)
      nanosleep(&(struct timespec){0, NAMED_NS / 10}, NULL);
    if (m->__data.__lock && !m->__data.__owner && is_plain(m)) {
      m->__data.__owner = gettid();
      m->__data.__nusers += m->__data.__nusers == 0;
    }
    ours = m->__data.__owner == gettid();
  } else if (c->taking_kind == WRITE) {
    ours = ((pthread_rwlock_t *)lock)->__data.__cur_writer == gettid();
  }
  struct sf_lock *l = lock_of(c, lock);
  if (!ours || (l && l->held))
    return;
  if (!l) {
    l = sf_grow(&c->locks, sizeof *l);
    *l = (struct sf_lock){NAMED(lock), .kind = (uint32_t)c->taking_kind, .fresh = 1};
  }
  l->held = 1;
  __sf_recover.shadow_locks(c, c->locks.used);
}

/* R3, R8. */
static int take_locks(struct sf_context *c, const char *name, void *lock, uint32_t kind, taker take, const void *until) {
  struct sf_lock *l = lock_of(c, lock);
  if (!FIRST) {
    int r = (int)sf_replay(c, name, (uint64_t)lock)->result;
    if (r == 0) {
      if (unlikely(!l))
        sf_differ("the second run takes a lock that the first did not take", (uint64_t)lock, 0, 1);
      l->count++;
    }
    return r;
  }
  int r = 0;
  if (l && l->made) {
    r = take_made(l, kind, take);
    l->count += r == 0;
  } else if (l && l->count == 0 && l->held > 0) {
    /* Unlocked by the program, but kept until V: it is still ours. */
    if (l->kind != kind)
      sf_stop("a handler takes a lock for reading and again for writing (or the other way round); until the handler ends "
              "the first hold is kept",
              "take it for writing from the beginning, or split the handler");
    l->count = 1;
  } else if (unlikely(c->retry) && kind == MUTEX && !l && is_plain(lock) && ((pthread_mutex_t *)lock)->__data.__owner == gettid()) {
    /* The run that failed has taken it, and lost it from its list. Locked since before the handler it would have stopped that
       run here. */
    l = sf_grow(&c->locks, sizeof *l);
    *l = (struct sf_lock){NAMED(lock), .kind = kind, .count = 1, .held = 1, .fresh = 1};
    publish(c, c->locks.used / sizeof *l - 1, c->locks.used / sizeof *l);
    __sf_recover.shadow_locks(c, c->locks.used);
  } else {
    c->taking_kind = kind;
    c->taking = lock;
    r = take_or_give_way(c, lock, take, until);
    l = lock_of(c, lock);
    if (r == 0) {
      if (!l) {
        l = sf_grow(&c->locks, sizeof *l);
        *l = (struct sf_lock){NAMED(lock), .kind = kind, .fresh = 1};
        publish(c, c->locks.used / sizeof *l - 1, c->locks.used / sizeof *l);
      }
      l->count++;
      l->held++;
      if (unlikely(c->shadow != NULL))
        __sf_recover.shadow_locks(c, c->locks.used);
    }
    c->taking = NULL;
  }
  sf_record(c, name, (uint64_t)lock, 0)->result = (uint64_t)r;
  return r;
}

/* Glibc's own word for the owner decides about locks that were taken outside handlers. */
static struct sf_lock *own_lock(struct sf_context *c, void *lock, uint32_t kind) {
  struct sf_lock *l = lock_of(c, lock);
  if (!l && kind == MUTEX && ((pthread_mutex_t *)lock)->__data.__owner == gettid()) {
    l = sf_grow(&c->locks, sizeof *l);
    *l = (struct sf_lock){NAMED(lock), .kind = kind, .count = 1, .count_begin = 1, .held = 1};
  }
  return l;
}

bool sf_lock_held(struct sf_context *c, void *lock) {
  struct sf_lock *l = own_lock(c, lock, MUTEX);
  return l && l->kind == MUTEX && l->count;
}

void sf_lock_shown(struct sf_context *c, const void *lock, bool shown) {
  struct sf_lock *l = lock_of(c, (void *)lock);
  size_t i = l ? (size_t)(l - (struct sf_lock *)c->locks.base) : SF_HOLDS;
  if (i < SF_HOLDS)
    atomic_store_explicit(&c->holds[i], shown ? lock : NULL, memory_order_release);
}

/* R4, R9. */
static int release_locks(struct sf_context *c, void *lock, uint32_t kind) {
  struct sf_lock *l = own_lock(c, lock, kind);
  if (unlikely(!l || l->count == 0))
    sf_differ("a lock is released that this thread does not hold", (uint64_t)lock, 0, 0);
  l->count--;
  return 0;
}

void sf_locks_begin(struct sf_context *c) {
  struct sf_lock *l = (struct sf_lock *)c->locks.base;
  size_t n = c->locks.used / sizeof *l, kept = 0;
  for (size_t i = 0; i < n; i++) {
    /* Released outside handlers meanwhile. */
    if (l[i].kind == MUTEX && ((pthread_mutex_t *)l[i].lock)->__data.__owner != gettid())
      continue;
    l[kept] = l[i];
    l[kept].count_begin = l[kept].count;
    l[kept].fresh = 0;
    kept++;
  }
  c->locks.used = kept * sizeof *l;
  if (unlikely(c->shadow != NULL))
    __sf_recover.shadow_locks(c, kept * sizeof *l);
  publish(c, 0, n);
}

void sf_locks_between_runs(struct sf_context *c) {
  struct sf_lock *l = (struct sf_lock *)c->locks.base;
  for (size_t n = c->locks.used / sizeof *l; n; n--, l++) {
    l->count_first = l->count;
    l->count = l->fresh ? 0 : l->count_begin;
  }
}

/* By glibc's own word, which only taking the lock writes: our list says the same of a thread that a jump has taken past the call.
   Locks for reading and spinning ones name nobody. */
static bool is_ours(struct sf_context *c, const struct sf_lock *l) {
  int owner;
  if (l->kind == MUTEX)
    owner = ((pthread_mutex_t *)l->lock)->__data.__owner;
  else if (l->kind == WRITE)
    owner = ((pthread_rwlock_t *)l->lock)->__data.__cur_writer;
  else
    return true;
  /* A child of fork has another. */
  return likely(owner == c->tid) || owner == (c->tid = gettid());
}

/* Each word of the list on its own side: what changes by one bit changes the sum. */
static uint64_t sum_of_locks(const struct sf_context *c) {
  const struct sf_lock *l = (const struct sf_lock *)c->locks.base;
  uint64_t sum = c->locks.used;
  for (size_t n = c->locks.used / sizeof *l; n; n--, l++) {
    sum = sf_mix(sum, (uint64_t)l->lock);
    sum = sf_mix(sum, (uint64_t)l->kind << 32 | l->count);
    sum = sf_mix(sum, (uint64_t)l->held << 32 | l->made);
  }
  return sum;
}

/* A lock that the list has lost is never given back, and another thread, or this one, waits for it for ever: so a list that has changed
   between V and here ends the program. */
void sf_locks_hold(struct sf_context *c) {
  if (!SF_CHECKED(LOCKS))
    return;
  uint64_t sum = c->locks.size && c->locks.used > c->locks.size ? ~c->locks_sum : sum_of_locks(c);
  if (likely(sum == c->locks_sum))
    return;
  c->rolling = 1; /* validated: nothing is put back */
  sf_differ("the list of locks has changed since it was validated", (uint64_t)c->locks.base, c->locks_sum, sum);
}

void sf_locks_check(struct sf_context *c) {
  struct sf_lock *l = (struct sf_lock *)c->locks.base;
  for (size_t n = c->locks.used / sizeof *l; n; n--, l++) {
    if (unlikely(l->count != l->count_first))
      sf_differ("the runs hold a lock differently", (uint64_t)l->lock, l->count_first, l->count);
    if (l->held && !l->made && unlikely(!is_ours(c, l))) {
      c->rolling = 1; /* nothing is put back: another thread may be where this one was */
      sf_differ("a lock is in the list that this thread does not hold", (uint64_t)l->lock, l->held, 0);
    }
  }
  if (SF_CHECKED(LOCKS))
    c->locks_sum = sum_of_locks(c);
}

void sf_locks_forget(struct sf_context *c) {
  struct sf_lock *l = (struct sf_lock *)c->locks.base;
  size_t n = c->locks.used / sizeof *l, kept = 0;
  for (size_t i = 0; i < n; i++)
    if (!l[i].made)
      l[kept++] = l[i];
  c->locks.used = kept * sizeof *l;
  publish(c, 0, n);
}

static void give_back_locks(struct sf_lock *l) {
  int r = l->kind == MUTEX  ? pthread_mutex_unlock(l->lock)
          : l->kind == SPIN ? pthread_spin_unlock(l->lock)
          : l->kind == ONCE ? (leave_once(l->lock), 0)
                            : pthread_rwlock_unlock(l->lock);
  if (unlikely(r != 0))
    sf_differ("a lock is no longer held when the handler ends", (uint64_t)l->lock, 0, (uint64_t)r);
  l->held--;
}

void sf_locks_release(struct sf_context *c) {
  struct sf_lock *l = (struct sf_lock *)c->locks.base;
  size_t n = c->locks.used / sizeof *l, kept = 0;
  for (size_t i = 0; i < n; i++) {
    /* Made by this handler, and still locked by it: now for all to see. */
    for (; l[i].made && l[i].held < l[i].count; l[i].held++)
      (l[i].kind == MUTEX  ? pthread_mutex_lock(l[i].lock)
       : l[i].kind == SPIN ? pthread_spin_lock(l[i].lock)
       : l[i].kind == READ ? pthread_rwlock_rdlock(l[i].lock)
                           : pthread_rwlock_wrlock(l[i].lock));
    l[i].made = 0;
    while (l[i].held > l[i].count)
      give_back_locks(&l[i]);
    if (l[i].held)
      l[kept++] = l[i];
  }
  c->locks.used = kept * sizeof *l;
  publish(c, 0, n);
}

#define LOCK(NAME, KIND, TAKER, ...)                      \
  SF_API int __sf_w_##NAME(void *lock) {                  \
    INSIDE;                                               \
    return take_locks(c, #NAME, lock, KIND, TAKER, NULL); \
  }
#define UNLOCK(NAME, KIND)               \
  SF_API int __sf_w_##NAME(void *lock) { \
    INSIDE;                              \
    return release_locks(c, lock, KIND); \
  }
LOCK(pthread_mutex_lock, MUTEX, take_mutex)
LOCK(pthread_mutex_trylock, MUTEX, try_mutex)
UNLOCK(pthread_mutex_unlock, MUTEX)
LOCK(pthread_rwlock_rdlock, READ, take_read)
LOCK(pthread_rwlock_tryrdlock, READ, try_read)
LOCK(pthread_rwlock_wrlock, WRITE, take_write)
LOCK(pthread_rwlock_trywrlock, WRITE, try_write)
UNLOCK(pthread_rwlock_unlock, READ)
LOCK(pthread_spin_lock, SPIN, take_spin)
LOCK(pthread_spin_trylock, SPIN, try_spin)
UNLOCK(pthread_spin_unlock, SPIN)

SF_API int __sf_w_pthread_mutex_timedlock(void *lock, const struct timespec *until) {
  INSIDE;
  return take_locks(c, "pthread_mutex_timedlock", lock, MUTEX, timed_mutex, until);
}

/* Making and unmaking locks. */

static int made(struct sf_context *c, void *lock, uint32_t kind, int failed) {
  if (failed)
    return failed;
  struct sf_lock *l = lock_of(c, lock);
  if (FIRST) {
    if (l && l->held)
      sf_stop("a handler initialises a lock that it has taken", "unlock it in an earlier handler");
    if (!l)
      l = sf_grow(&c->locks, sizeof *l);
    *l = (struct sf_lock){NAMED(lock), .kind = kind, .fresh = 1, .made = 1};
    sf_defer_forget(c, lock); /* destroyed before, and now made again in the same place */
  } else if (unlikely(!l || !l->made)) {
    sf_differ("the second run makes a lock that the first did not make", (uint64_t)lock, 0, 1);
  }
  return 0;
}

#define MAKE(NAME, TYPE, KIND, ...)                                \
  SF_API int __sf_w_##NAME __VA_ARGS__ {                           \
    INSIDE;                                                        \
    int failed;                                                    \
    LOGGED((void *)lock, sizeof(TYPE), failed = NAME(lock, with)); \
    return made(c, (void *)lock, KIND, failed);                    \
  }
MAKE(pthread_mutex_init, pthread_mutex_t, MUTEX, (pthread_mutex_t * lock, const pthread_mutexattr_t *with))
MAKE(pthread_rwlock_init, pthread_rwlock_t, WRITE, (pthread_rwlock_t * lock, const pthread_rwlockattr_t *with))
MAKE(pthread_spin_init, pthread_spinlock_t, SPIN, (pthread_spinlock_t * lock, int with))

/* After V, and after this handler has unlocked it. */
#define UNMAKE(NAME)                             \
  SF_API int __sf_w_##NAME(void *lock) {         \
    INSIDE;                                      \
    sf_defer_last(c, #NAME, (void *)NAME, lock); \
    return 0;                                    \
  }
UNMAKE(pthread_mutex_destroy)
UNMAKE(pthread_rwlock_destroy)
UNMAKE(pthread_spin_destroy)
UNMAKE(pthread_cond_destroy)

/* What only fills memory of the program. */
#define FILL(NAME, TYPE, PARAMETERS, ...)                 \
  SF_API int __sf_w_##NAME PARAMETERS {                   \
    int failed;                                           \
    LOGGED(to, sizeof(TYPE), failed = NAME(__VA_ARGS__)); \
    return failed;                                        \
  }
FILL(pthread_cond_init, pthread_cond_t, (pthread_cond_t * to, const pthread_condattr_t *with), to, with)
FILL(pthread_mutexattr_init, pthread_mutexattr_t, (pthread_mutexattr_t * to), to)
FILL(pthread_mutexattr_destroy, pthread_mutexattr_t, (pthread_mutexattr_t * to), to)
FILL(pthread_mutexattr_settype, pthread_mutexattr_t, (pthread_mutexattr_t * to, int value), to, value)
FILL(pthread_mutexattr_setpshared, pthread_mutexattr_t, (pthread_mutexattr_t * to, int value), to, value)
FILL(pthread_mutexattr_setprotocol, pthread_mutexattr_t, (pthread_mutexattr_t * to, int value), to, value)
FILL(pthread_mutexattr_setrobust, pthread_mutexattr_t, (pthread_mutexattr_t * to, int value), to, value)
FILL(pthread_rwlockattr_init, pthread_rwlockattr_t, (pthread_rwlockattr_t * to), to)
FILL(pthread_rwlockattr_destroy, pthread_rwlockattr_t, (pthread_rwlockattr_t * to), to)
FILL(pthread_rwlockattr_setpshared, pthread_rwlockattr_t, (pthread_rwlockattr_t * to, int value), to, value)
FILL(pthread_condattr_init, pthread_condattr_t, (pthread_condattr_t * to), to)
FILL(pthread_condattr_destroy, pthread_condattr_t, (pthread_condattr_t * to), to)
FILL(pthread_condattr_setclock, pthread_condattr_t, (pthread_condattr_t * to, clockid_t value), to, value)
FILL(pthread_condattr_setpshared, pthread_condattr_t, (pthread_condattr_t * to, int value), to, value)

/* A signal before V would wake a thread to a state that is not there yet. */
SF_API int __sf_w_pthread_cond_signal(void *cond) {
  uint64_t a[1] = {(uint64_t)cond};
  __sf_defer("pthread_cond_signal", (void *)pthread_cond_signal, 1, a);
  return 0;
}

SF_API int __sf_w_pthread_cond_broadcast(void *cond) {
  uint64_t a[1] = {(uint64_t)cond};
  __sf_defer("pthread_cond_broadcast", (void *)pthread_cond_broadcast, 1, a);
  return 0;
}

/* What is done once: both runs of the handler that comes first do it, and it is done for others when that has passed. Meanwhile it is
   a lock that the handler holds. */

static void done(_Atomic int *control) { atomic_store(control, finished); }

/* By this handler. */
static bool is_done_here(struct sf_context *c, const pthread_once_t *control) {
  struct sf_deferred *d = (struct sf_deferred *)c->deferred.base;
  for (size_t n = FIRST ? c->deferred.used / sizeof *d : c->deferred_cursor; n; n--, d++)
    if (d->function == (void *)done && d->arguments[0] == (uint64_t)control)
      return true;
  return false;
}

SF_API int __sf_w_pthread_once(pthread_once_t *control, void (*routine)(void)) {
  INSIDE;
  if (is_done_here(c, control) || take_locks(c, "pthread_once", control, ONCE, take_once, NULL) != 0)
    return 0;
  ((void (*)(void))__sf_clone((void *)routine, "pthread_once"))();
  __sf_defer("pthread_once", (void *)done, 1, (uint64_t[]){(uint64_t)control});
  return release_locks(c, control, ONCE);
}

SF_API void __sf_w_call_once(once_flag *control, void (*routine)(void)) { (void)__sf_w_pthread_once((pthread_once_t *)control, routine); }

/* C11: the same locks under other names (glibc), with answers of their own. */
static int c11(int failed) {
  return failed == 0 ? thrd_success : failed == EBUSY ? thrd_busy : failed == ETIMEDOUT ? thrd_timedout : thrd_error;
}

SF_API int __sf_w_mtx_lock(void *lock) {
  INSIDE;
  return c11(take_locks(c, "mtx_lock", lock, MUTEX, take_mutex, NULL));
}

SF_API int __sf_w_mtx_trylock(void *lock) {
  INSIDE;
  return c11(take_locks(c, "mtx_trylock", lock, MUTEX, try_mutex, NULL));
}

SF_API int __sf_w_mtx_timedlock(void *lock, const struct timespec *until) {
  INSIDE;
  return c11(take_locks(c, "mtx_timedlock", lock, MUTEX, timed_mutex, until));
}

SF_API int __sf_w_mtx_unlock(void *lock) {
  INSIDE;
  return release_locks(c, lock, MUTEX);
}

SF_API int __sf_w_mtx_init(mtx_t *lock, int type) {
  INSIDE;
  int failed;
  LOGGED(lock, sizeof *lock, failed = mtx_init(lock, type));
  return made(c, lock, MUTEX, failed);
}

SF_API int __sf_w_cnd_init(cnd_t *to) {
  int failed;
  LOGGED(to, sizeof *to, failed = cnd_init(to));
  return failed;
}

SF_API void __sf_w_mtx_destroy(void *lock) { (void)__sf_w_pthread_mutex_destroy(lock); }
SF_API void __sf_w_cnd_destroy(void *cond) { (void)__sf_w_pthread_cond_destroy(cond); }
