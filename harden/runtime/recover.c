/*
 * --recover: after a mismatch, memory as it was before the handler, and both runs again, on another core if there is one.
 *
 * Linked only when asked for (`steadfast cc --recover`): core.c asks whether __sf_recover_on is there.
 *
 *     mismatch or crash in E1, E2 or V
 *       the runtime's tables lie where their second record says
 *       old values: from the log, if it still has its sum; else from the second log, if that has; else stop
 *       has something been written whose old value nobody knows?   stop
 *       put back from O alone, read back
 *       what the runs had taken from outside (input, calls of class once) is kept and given again
 *       memory they had been given is freed, locks stay held, also one that was just being taken
 *     begin again; at most 3 times, then stop
 *
 * A retry is not believed because it is later: both of its runs must agree with each other, as in any handler. When the
 * same difference comes again, the handler is not deterministic, or what it reads has changed in memory; no core is blamed.
 *
 * The second log has entries and bytes of its own, read from memory once more, with a sum and a count of its own. It is
 * filled by core.c, so stores take the long way to the log (store.S) in programs that recover. Both are made before the
 * store: where a crash has left one entry or range in the first log alone, nothing has been stored yet.
 *
 * Invariants
 *  1. What is put back comes from a log whose sum holds, and of ranges, whose checksum does.
 *  2. General registers only where core.c calls this file: vector registers of the program are live there.
 *
 * Not covered: stores that were never logged and went elsewhere than the check after them looks (an address that changed in
 * between), and an input that has changed in memory.
 */
#define _GNU_SOURCE
#include "state.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

SF_API const int __sf_recover_on = 1;

/* Crashes in a run: a flipped pointer ends here as often as in a mismatch. */
static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
static struct sigaction before[65];

static void crashed(int number, siginfo_t *info, void *context) {
  (void)context;
  if (__sf_tls.phase != SF_OUTSIDE)
    sf_differ(sf_crash, (uint64_t)info->si_addr, (uint64_t)number, __sf_tls.phase);
  /* The program's own crash: as if nobody had been here. The instruction runs again and is not caught. */
  sigaction(number, &before[number], NULL);
}

__attribute__((constructor(105))) static void prepare(void) {
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_sigaction = crashed;
  a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
    sigaction(crashes[i], &a, &before[crashes[i]]);
}

/* The second log. */

struct sf_twin {
  struct sf_entry *entries;
  size_t count, capacity;
  uint64_t sum;
  struct sf_buffer ranges; /* struct sf_range */
  struct sf_buffer bytes;  /* their old values */
  uint64_t places[32];     /* by `places_of` */
  uint64_t places_sum;
  uint64_t locks_used;
};

/* The same as c->twin, in another place. */
static __thread struct sf_twin *own __attribute__((tls_model("initial-exec")));

/* Where the runtime's tables are, and how large: what must be right for anything to be put back. */
#define PLACES 31
static void places_of(struct sf_context *c, uint64_t *at[PLACES]) {
  struct sf_buffer *buffers[] = {&c->arena, &c->ranges, &c->queue, &c->deferred, &c->locks,
                                 &c->parts, &c->kept,   &own->ranges, &own->bytes};
  size_t n = 0;
  at[n++] = (uint64_t *)&__sf_tls.table;
  at[n++] = &__sf_tls.index_mask;
  at[n++] = (uint64_t *)&c->masks;
  at[n++] = (uint64_t *)&c->entries;
  at[n++] = (uint64_t *)&c->news;
  at[n++] = &c->capacity;
  at[n++] = &c->stack_low;
  at[n++] = &c->stack_high;
  at[n++] = (uint64_t *)&c->handler;
  at[n++] = (uint64_t *)&c->carry;
  at[n++] = (uint64_t *)&c->twin;
  at[n++] = (uint64_t *)&own->entries;
  at[n++] = &own->capacity;
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
    at[n++] = (uint64_t *)&buffers[i]->base;
    at[n++] = &buffers[i]->size;
  }
}
_Static_assert(13 + 2 * 9 == PLACES && PLACES <= 32, "places_of fills it");

void sf_twin_thread(struct sf_context *c) {
  struct sf_twin *t = sf_map(sizeof *t);
  t->capacity = SF_WORDS;
  t->entries = sf_map(t->capacity * sizeof *t->entries);
  c->twin = own = t;
}

void sf_twin_thread_end(struct sf_context *c) {
  struct sf_twin *t = c->twin;
  c->twin = own = NULL;
  sf_unmap(t->entries, t->capacity * sizeof *t->entries);
  if (t->ranges.base)
    sf_unmap(t->ranges.base, t->ranges.size);
  if (t->bytes.base)
    sf_unmap(t->bytes.base, t->bytes.size);
  sf_unmap(t, sizeof *t);
}

void sf_twin_places(struct sf_context *c) {
  uint64_t *at[PLACES];
  places_of(c, at);
  uint64_t sum = 0;
  for (size_t i = 0; i < PLACES; i++) {
    uint64_t place = *at[i];
    own->places[i] = place;
    sum += place ^ i;
  }
  own->places_sum = sum;
}

void sf_twin_locks(struct sf_context *c) {
  if (c->twin)
    c->twin->locks_used = c->locks.used;
}

void sf_twin_places_mend(struct sf_context *c) {
  uint64_t *at[PLACES], sum = 0;
  places_of(c, at);
  for (size_t i = 0; i < PLACES; i++)
    sum += own->places[i] ^ i;
  c->locks.used = own->locks_used;
  /* Else it is this record that was struck. */
  for (size_t i = 0; i < PLACES && sum == own->places_sum; i++)
    *at[i] = own->places[i];
}

/* Empty, and small again when it has been much larger than needed for a while (core.c: reset). */
static void empty(struct sf_buffer *b) {
  b->idle = b->used < b->size / 4 ? b->idle + 1 : 0;
  b->used = 0;
  if (b->size > 64 << 10 && b->idle > SF_IDLE) {
    sf_unmap(b->base, b->size);
    *b = (struct sf_buffer){0};
  }
}

/* A handler begins. All its stores take the long way, and no entry is known to be a whole word. */
void sf_twin_begin(struct sf_context *c) {
  struct sf_twin *t = c->twin;
  if (!c->retry)
    c->queue.used = c->deferred.used = c->parts.used = c->ranges.used = c->arena.used = 0;
  c->taking = NULL;
  sf_twin_locks(c);
  __sf_tls.limit = NULL;
  __sf_tls.partial |= 1;
  t->count = t->sum = 0;
  empty(&t->ranges);
  empty(&t->bytes);
  if (t->capacity > SF_WORDS && c->capacity == SF_WORDS) {
    sf_unmap(t->entries, t->capacity * sizeof *t->entries);
    t->capacity = SF_WORDS;
    t->entries = sf_map(t->capacity * sizeof *t->entries);
  }
  sf_twin_places(c);
}

SF_WHOLE_WORDS void sf_twin_word(struct sf_context *c, uint64_t where) {
  struct sf_twin *t = c->twin;
  if (t->count == t->capacity) {
    struct sf_entry *larger = sf_map(2 * t->capacity * sizeof *larger);
    sf_copy(larger, t->entries, t->count * sizeof *larger);
    sf_unmap(t->entries, t->capacity * sizeof *larger);
    t->entries = larger;
    t->capacity *= 2;
    sf_twin_places(c);
  }
  struct sf_entry *e = t->entries + t->count;
  uint64_t old = *(volatile uint64_t *)(where & 0xffffffffffffffull);
  e->where = where;
  e->old = old;
  sf_reload();
  if (e != t->entries + t->count)
    sf_differ(sf_wrong_place, where, (uint64_t)(t->entries + t->count), (uint64_t)e);
  t->sum += where ^ old; /* not what the entry says, which may be damaged */
  t->count++;
}

uint32_t sf_twin_range_crc(const struct sf_range *r, const uint8_t *old) {
  uint64_t head[3] = {r->at, r->length, r->after};
  return sf_crc32c(sf_crc32c(0, head, sizeof head), old, r->length);
}

void sf_twin_range(struct sf_context *c, const struct sf_range *made) {
  struct sf_twin *t = c->twin;
  struct sf_range r = *made;
  r.old = t->bytes.used;
  uint8_t *old = sf_grow(&t->bytes, r.length);
  sf_copy(old, (const void *)sf_own((void *)r.at), r.length);
  r.crc = sf_twin_range_crc(&r, old);
  *(struct sf_range *)sf_grow(&t->ranges, sizeof r) = r;
}

static bool holds(const struct sf_range *r, const struct sf_buffer *bytes, size_t words) {
  return r->after <= words && r->length <= bytes->used && r->old <= bytes->used - r->length &&
         sf_twin_range_crc(r, bytes->base + r->old) == r->crc;
}

bool sf_twin_ranges_hold(struct sf_context *c) {
  const struct sf_range *r = (struct sf_range *)c->ranges.base;
  size_t count = c->ranges.used / sizeof *r;
  if (count * sizeof *r != c->ranges.used || c->ranges.used != c->twin->ranges.used)
    return false;
  for (size_t i = 0; i < count; i++)
    if (!holds(r + i, &c->arena, c->count))
      return false;
  return true;
}

static bool sums_up(const struct sf_entry *e, size_t count, size_t capacity, uint64_t sum) {
  uint64_t total = 0;
  if (count > capacity)
    return false;
  for (size_t i = 0; i < count; i++)
    total += e[i].where ^ e[i].old;
  return total == sum;
}

/* Bytes that are not meant may be another thread's, and other ones at the second reading. */
static uint64_t meant(uint64_t where) {
  uint64_t mask = 0;
  for (unsigned k = 0; k < 8; k++)
    if (!(where >> (56 + k) & 1))
      mask |= 0xffull << 8 * k;
  return mask;
}

bool sf_twin_agrees(struct sf_context *c) {
  const struct sf_twin *t = c->twin;
  size_t count = t->count < c->count ? t->count : c->count;
  uint64_t wrong = 0;
  for (size_t i = 0; i < count; i++) {
    uint64_t where = c->entries[i].where, bits = c->entries[i].old ^ t->entries[i].old;
    wrong |= where ^ t->entries[i].where;
    if (bits)
      wrong |= bits & meant(where);
  }
  return wrong == 0 && c->count - count <= 1 && t->count == count;
}

const char *sf_twin_mend(struct sf_context *c) {
  struct sf_twin *t = c->twin;
  bool second = t->count <= c->capacity && sums_up(t->entries, t->count, t->capacity, t->sum);
  if (sums_up(c->entries, c->count, c->capacity, __sf_tls.sum)) {
    if (second && !sf_twin_agrees(c))
      return "the two logs of the old values differ, and both have their sum";
  } else {
    if (!second)
      return "neither log of the old values has its sum";
    sf_copy(c->entries, t->entries, t->count * sizeof *t->entries);
    c->count = t->count;
    __sf_tls.cursor = c->entries + c->count;
    __sf_tls.sum = t->sum;
  }
  const struct sf_range *twins = (struct sf_range *)t->ranges.base;
  size_t count = c->ranges.used / sizeof *twins, twin_count = t->ranges.used / sizeof *twins;
  bool ours = c->ranges.used % sizeof *twins == 0 && count - twin_count <= 1;
  if (!ours) {
    if (t->ranges.used > c->ranges.size)
      return "neither log of the old bytes has its end";
    count = twin_count;
    c->ranges.used = t->ranges.used;
  }
  for (size_t i = 0; i < count; i++) {
    struct sf_range *r = (struct sf_range *)c->ranges.base + i;
    if (ours && holds(r, &c->arena, c->count))
      continue;
    if (i >= twin_count) {
      /* Begun and not whole: nothing has been stored there. */
      c->ranges.used = i * sizeof *r;
      break;
    }
    if (!holds(twins + i, &t->bytes, c->count))
      return "neither copy of the old bytes of a range has its checksum";
    *r = twins[i];
    r->old = c->arena.used;
    /* As core.c expects it: old bytes, and room for the new. */
    sf_copy(sf_grow(&c->arena, 2 * r->length), t->bytes.base + twins[i].old, r->length);
  }
  return NULL;
}

/* A stack for the handler above: the fault may be that of the stack pointer. */
void sf_recover_thread(void) {
  stack_t s;
  if (sigaltstack(NULL, &s) == 0 && (s.ss_flags & SS_DISABLE)) {
    s = (stack_t){.ss_sp = sf_map(16384), .ss_size = 16384};
    sigaltstack(&s, NULL);
  }
}

/* Another core, for as long as the retry lasts. Where there is one core, the same. */
void sf_recover_move(struct sf_context *c) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0)
    return;
  if (c->retry == 1) {
    memcpy(c->affinity, &all, sizeof c->affinity < sizeof all ? sizeof c->affinity : sizeof all);
  } else {
    memcpy(&all, c->affinity, sizeof c->affinity < sizeof all ? sizeof c->affinity : sizeof all);
  }
  int here = sched_getcpu();
  for (int i = 1; i < CPU_SETSIZE; i++) {
    int there = (here + i) % CPU_SETSIZE;
    if (there != here && CPU_ISSET(there, &all)) {
      CPU_ZERO(&one);
      CPU_SET(there, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
  }
}

void sf_recover_done(struct sf_context *c) {
  cpu_set_t all;
  CPU_ZERO(&all);
  memcpy(&all, c->affinity, sizeof c->affinity < sizeof all ? sizeof c->affinity : sizeof all);
  sched_setaffinity(0, sizeof all, &all);
}
