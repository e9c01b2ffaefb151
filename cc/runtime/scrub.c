/*
 * The scrubber: looks through state at rest for what has changed by itself, before a handler meets it.
 *
 *     256 bytes with a copy            equal: their checksum is kept, if nothing was written since the last look
 *                                      different: the one that has the checksum is right, the other is repaired
 *     cells                            their own checksums
 *
 * sf_scrub looks through so many bytes when it is called; STEADFAST_SCRUB=BYTES in the environment starts a thread that
 * looks through that many in a second, round and round. What it repairs is an event and a line; what it cannot repair
 * stops the program, status 122.
 *
 * While other threads run, an object and its copy may differ for a moment. The first look takes no notice of handlers;
 * what does not fit is looked at again while none is inside (sf_state_begin keeps new ones out), several times.
 *
 * Invariants
 *  1. Nothing is repaired that was written since the checksum was taken: every writer clears the mark, before
 *     and after (state.c).
 *  2. A handler waits for the scrubber for as long as one second look takes, and no longer than HOLD_NS.
 *
 * Not covered: the same change to an object and to its copy; what is written more often than it is looked at has
 * no checksum to tell which is right.
 */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HOLD_NS 100000000 /* a handler that waits for something else does not end for the scrubber */

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t holding;
static size_t cursor; /* bytes of all kinds, in the order of part() */
static uint64_t repaired_count;

static uint64_t now_scrub(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void pause_ns(long ns) {
  struct timespec t = {0, ns};
  nanosleep(&t, NULL);
}

/* Called with the counter odd, before anything of the state is read. */
void sf_state_begin(struct sf_context *);
bool sf_state_repair(void);
void sf_state_begin(struct sf_context *c) {
  c->state = 1;
  while (unlikely(atomic_load(&holding))) {
    atomic_fetch_add(&c->counter, 1);
    while (atomic_load(&holding))
      pause_ns(50000);
    atomic_fetch_add(&c->counter, 1);
  }
}

/* No handler of another thread is inside, and none begins; 0 if one does not end. */
static bool hold_scrub(void) {
  atomic_store(&holding, 1);
  /* Every running thread has either published its odd counter or will see `holding` (MEMBARRIER_CMD_GLOBAL). */
  sf_syscall(324 /* membarrier */, 1, 0, 0, 0, 0, 0);
  for (uint64_t until = now_scrub() + HOLD_NS;;) {
    bool inside = false;
    for (struct sf_context *c = atomic_load(&sf_contexts); c; c = c->next)
      inside |= c != __sf_own && atomic_load(&c->counter) & 1;
    if (!inside)
      return true;
    if (now_scrub() > until)
      return false;
    pause_ns(50000);
  }
}

static void release_scrub(void) { atomic_store(&holding, 0); }

static struct sf_span part(int i) {
  switch (i) {
  case 0:
    return (struct sf_span){SF_DUP_BASE, sf_heap_end(SF_DUP) - SF_DUP_BASE};
  case 1:
    return (struct sf_span){__sf_places.dup_at, __sf_places.dup_length};
  case 2:
    return (struct sf_span){SF_CRC_BASE, sf_heap_end(SF_CRC) - SF_CRC_BASE};
  default:
    return (struct sf_span){__sf_places.crc_at, __sf_places.crc_length};
  }
}

static uint32_t sum(uintptr_t at, size_t length) { return sf_crc32c((uint32_t)at, (const void *)at, length); }
static uint32_t sum_of_copy(uintptr_t at, size_t length) { return sf_crc32c((uint32_t)at, (const void *)(at + SF_COPY), length); }

/* One of object and copy made like the other, if the checksum fits exactly one. At rest: nobody writes, but for libraries what they
   keep, which stays as it is. */
static bool repair(uintptr_t at, size_t length) {
  uint8_t *object = (uint8_t *)at, *copy = object + SF_COPY;
  if (*sf_mark_of(at) != 1)
    return false;
  uint32_t kept = *sf_sum_of(at);
  bool object_fits = sum(at, length) == kept, copy_fits = sum_of_copy(at, length) == kept;
  if (object_fits == copy_fits)
    return false;
  for (size_t i = 0; (i += sf_difference(at + i, length - i)) < length; i++) {
    sf_tell_state(object_fits ? "state has changed at rest: the copy was wrong," : "state has changed at rest: the object was wrong,",
                  at + i, object[i], copy[i], "repaired");
    repaired_count++;
    *(volatile uint8_t *)(object_fits ? &copy[i] : &object[i]) = object_fits ? object[i] : copy[i];
  }
  return sf_same(at, length);
}

static bool cells_fit(uintptr_t at, size_t length, uintptr_t *wrong) {
  for (uintptr_t cell = at & ~(SF_CELL - 1); cell < at + length; cell += SF_CELL)
    if (sf_cell_crc(cell) != *(volatile uint32_t *)sf_check_of(cell)) {
      *wrong = cell;
      return false;
    }
  return true;
}

static void grain(uintptr_t at, size_t length) {
  uintptr_t wrong = at;
  if (sf_is_dup(at)) {
    if (likely(sf_equal((void *)at, (void *)(at + SF_COPY), length))) {
      if (*sf_mark_of(at) == 1 && *sf_sum_of(at) == sum(at, length))
        return;
      *sf_mark_of(at) = 1;
      atomic_thread_fence(memory_order_seq_cst);
      uint32_t of_object = sum(at, length);
      *sf_sum_of(at) = of_object;
      if (of_object != sum_of_copy(at, length))
        *sf_mark_of(at) = 0; /* somebody was writing: next time */
      return;
    }
  } else if (likely(cells_fit(at, length, &wrong))) {
    return;
  }
  if (sf_is_dup(at) && sf_difference(at, length) == length)
    return;
  bool held = hold_scrub();
  if (held && sf_state_stays_wrong(at, length) && !(sf_is_dup(at) && repair(at, length))) {
    if (sf_is_dup(at)) {
      wrong += sf_difference(at, length);
      sf_tell_state("state has changed at rest: object and copy differ, and no checksum tells which is right,", wrong, *(uint8_t *)wrong,
                    *(uint8_t *)(wrong + SF_COPY), "stopped");
    } else {
      cells_fit(at, length, &wrong);
      sf_tell_state("state has changed at rest: its checksum does not fit,", wrong, *sf_check_of(wrong), sf_cell_crc(wrong), "stopped");
    }
    sf_leave(122);
  }
  release_scrub();
}

/* The next so many bytes, in whole grains; 0: everything once. */
SF_API size_t sf_scrub(size_t bytes) {
  if (__sf_tls.phase != SF_OUTSIDE)
    sf_stop("sf_scrub belongs outside handlers, found inside one", "call it between handlers");
  pthread_mutex_lock(&one);
  uint64_t before = repaired_count;
  size_t all = 0, done = 0;
  for (int i = 0; i < 4; i++)
    all += part(i).length;
  if (bytes == 0 || bytes > all)
    bytes = all;
  while (done < bytes) {
    if (cursor >= all)
      cursor = 0;
    size_t skip = cursor;
    int i = 0;
    while (i < 3 && skip >= part(i).length)
      skip -= part(i++).length;
    struct sf_span p = part(i);
    if (skip >= p.length) { /* something has grown meanwhile */
      cursor = 0;
      continue;
    }
    uintptr_t at = p.at + skip, end = (at & ~(SF_GRAIN - 1)) + SF_GRAIN;
    if (end > p.at + p.length)
      end = p.at + p.length;
    grain(at, end - at);
    cursor += end - at;
    done += end - at;
  }
  size_t repaired = (size_t)(repaired_count - before);
  pthread_mutex_unlock(&one);
  return repaired;
}

/* After a mismatch, by the thread whose handler begins again, or that has met a difference outside. What other threads
   have in hand cannot be told from what is wrong, so with others inside handlers nothing is touched. */
bool sf_state_repair(void) {
  for (struct sf_context *c = atomic_load(&sf_contexts); c; c = c->next)
    if (c != __sf_own && atomic_load(&c->counter) & 1)
      return true;
  bool all = true;
  for (int i = 0; i < 2; i++) {
    struct sf_span p = part(i);
    for (uintptr_t at = p.at; at < p.at + p.length;) {
      uintptr_t end = (at & ~(SF_GRAIN - 1)) + SF_GRAIN;
      if (end > p.at + p.length)
        end = p.at + p.length;
      if (!sf_same(at, end - at))
        all &= repair(at, end - at);
      at = end;
    }
  }
  return all;
}

/* The thread. */

static size_t rate;

static void *run(void *unused) {
  (void)unused;
  const long step = 10000000; /* a hundred portions a second */
  for (;;) {
    sf_scrub(rate / 100 + SF_GRAIN);
    pause_ns(step);
  }
  return NULL;
}

static void start_scrub(void) {
  pthread_t thread;
  pthread_attr_t detached;
  sigset_t all, before;
  /* Signals are the program's: none is delivered here. */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  if (pthread_create(&thread, &detached, run, NULL) != 0)
    sf_stop("a thread for the scrubber is needed, the kernel gives none", "raise the limit of processes, or unset STEADFAST_SCRUB");
  pthread_attr_destroy(&detached);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* A child of fork has none of its parent's threads, nor what they held. */
static void child(void) {
  pthread_mutex_init(&one, NULL);
  atomic_store(&holding, 0);
  start_scrub();
}

__attribute__((constructor(106))) static void prepare_scrub(void) {
  const char *text = getenv("STEADFAST_SCRUB");
  if (!text || !*text)
    return;
  char *end;
  errno = 0;
  unsigned long long wanted = strtoull(text, &end, 10);
  if (errno || end == text || *end || wanted == 0)
    sf_stop("STEADFAST_SCRUB needs a number of bytes a second", "STEADFAST_SCRUB=100000000");
  rate = (size_t)wanted;
  pthread_atfork(NULL, NULL, child);
  start_scrub();
}
