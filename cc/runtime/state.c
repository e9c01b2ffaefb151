/*
 * Objects with a copy and objects with checksums: checked where they are read, renewed where they are written.
 *
 *                     with a copy (dup)                            with checksums (crc)
 *     E1              works on the object                          first touch of a cell: its checksum (R1)
 *     R  state_mid    words written had equal copies               -
 *     E2              works on the copy, by pointers that          first touch of a cell: its checksum (R5)
 *                     it loads from copies
 *     V  compare.c    copy compared with N                         memory compared with N
 *        state_publish  object := N, read back; marked as written  new checksums
 *
 * Outside handlers every load of the program looks first, and every store is done to both, or renews checksums
 * (__sf_state_read, __sf_state_write, __sf_state_written; libraries: outside.c).
 *
 * Invariants
 *  1. The first run never reads or writes a copy, the second never an object that has one.
 *  2. A checksum is renewed only over a cell that fitted its old one in this run, plus bytes that V has passed.
 *
 * Not covered: what libraries write into objects by themselves, but for the calls in outside.c.
 */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>

extern char __start_sf_dup[] __attribute__((weak, visibility("hidden")));
extern char __stop_sf_dup[] __attribute__((weak, visibility("hidden")));
extern char __start_sf_crc[] __attribute__((weak, visibility("hidden")));
extern char __stop_sf_crc[] __attribute__((weak, visibility("hidden")));

#define PAGE 4096ull
#define BYTES 0xffull

/* Written at start, then never again. */
SF_API struct sf_places __sf_places __attribute__((aligned(4096)));
SF_API const int __sf_state_1 = 1;
void sf_state_begin(struct sf_context *); /* scrub.c */
bool sf_state_repair(void);
void *__sf_w_s_dup_malloc(size_t); /* outside.c */
void *__sf_w_s_crc_malloc(size_t);

void *sf_state_reserve(uintptr_t at, size_t bytes, int accessible);

/* The tables for the pages of a section. Those of neighbouring sections may share a page of a table. */
static void table(const void *from, const void *to) {
  uintptr_t low = (uintptr_t)from & ~(PAGE - 1), high = ((uintptr_t)to + PAGE - 1) & ~(PAGE - 1);
  for (uintptr_t at = low; at < high; at += PAGE)
    sf_syscall(9 /* mmap */, (long)at, (long)PAGE, 3, 0x22 | 0x100000 /* FIXED_NOREPLACE: there already */, -1, 0);
}

__attribute__((constructor(104))) static void prepare_state(void) {
  uintptr_t dup = (uintptr_t)__start_sf_dup, dup_end = (uintptr_t)__stop_sf_dup;
  uintptr_t crc = (uintptr_t)__start_sf_crc, crc_end = (uintptr_t)__stop_sf_crc;
  __asm__("" : "+r"(dup), "+r"(dup_end), "+r"(crc), "+r"(crc_end)); /* without any of a kind both are 0 */
  if (dup_end > dup) {
    uintptr_t low = dup & ~(PAGE - 1), high = (dup_end + PAGE - 1) & ~(PAGE - 1);
    sf_state_reserve(low + SF_COPY, high - low, 1);
    sf_copy((void *)(dup + SF_COPY), (void *)dup, dup_end - dup);
    table((void *)sf_mark_of(dup), (void *)(sf_mark_of(dup_end) + 1));
    table(sf_sum_of(dup), sf_sum_of(dup_end) + 1);
  }
  if (crc_end > crc) {
    table(sf_check_of(crc), sf_check_of(crc_end) + 1);
    table((void *)sf_mark_of(crc), (void *)(sf_mark_of(crc_end) + 1));
    table(sf_sum_of(crc), sf_sum_of(crc_end) + 1);
  }
  __sf_places.dup_at = dup;
  __sf_places.dup_length = dup_end - dup;
  __sf_places.crc_at = crc;
  __sf_places.crc_length = crc_end - crc;
  for (uintptr_t cell = crc & ~(SF_CELL - 1); cell < crc_end; cell += SF_CELL)
    *sf_check_of(cell) = sf_cell_crc(cell);
  sf_syscall(10 /* mprotect */, (long)&__sf_places, (long)PAGE, 1 /* READ */, 0, 0, 0);
}

/* Objects and cells. */

struct sf_span sf_object(uintptr_t at) {
  if (at - __sf_places.dup_at < __sf_places.dup_length)
    return (struct sf_span){__sf_places.dup_at, __sf_places.dup_length};
  if (at - __sf_places.crc_at < __sf_places.crc_length)
    return (struct sf_span){__sf_places.crc_at, __sf_places.crc_length};
  return sf_heap_block(at);
}

struct sf_span sf_cell_span(uintptr_t at) {
  uintptr_t low = at & ~(SF_CELL - 1), high = low + SF_CELL;
  if (at >> 43 != 3) {
    uintptr_t begin = __sf_places.crc_at, end = begin + __sf_places.crc_length;
    low = low < begin ? begin : low;
    high = high > end ? end : high;
  }
  return (struct sf_span){low, high - low};
}

uint32_t sf_cell_crc(uintptr_t at) {
  struct sf_span s = sf_cell_span(at);
  return sf_crc32c((uint32_t)s.at, (const void *)s.at, s.length); /* the address: a cell in the place of another shows */
}

static inline uintptr_t cell_of(uintptr_t at) { return at & ~(SF_CELL - 1); }

/* Which cells this run has looked at: a set that grows, emptied by its stamp. */

struct seen {
  uintptr_t cell;
  uint64_t stamp;
};
static __thread struct {
  struct seen *slots;
  size_t size, used;
  uint64_t stamp;
} seen;

static uint64_t stamp_now(const struct sf_context *c) {
  return c->event << 10 | (c->gave_way & 31) << 5 | (c->retry & 7) << 2 | __sf_tls.phase;
}

/* Whether the cell is new in this run; now it is not any more. */
static bool first_look(uintptr_t cell) {
  uint64_t stamp = stamp_now(__sf_own);
  if (seen.stamp != stamp) {
    seen.stamp = stamp;
    seen.used = 0;
  }
  if (seen.used >= seen.size / 2) {
    size_t size = seen.size ? 2 * seen.size : 256;
    struct seen *old = seen.slots, *new = sf_map(size * sizeof *new);
    for (size_t i = 0; old && i < seen.size; i++) {
      if (old[i].stamp != stamp)
        continue;
      size_t s = old[i].cell / SF_CELL & (size - 1);
      while (new[s].stamp == stamp)
        s = (s + 1) & (size - 1);
      new[s] = old[i];
    }
    if (old)
      sf_unmap(old, seen.size * sizeof *old);
    seen.slots = new;
    seen.size = size;
  }
  for (size_t s = cell / SF_CELL & (seen.size - 1);; s = (s + 1) & (seen.size - 1)) {
    struct seen *e = &seen.slots[s];
    if (e->stamp != stamp) {
      *e = (struct seen){cell, stamp};
      if (unlikely(e != *(struct seen *volatile *)&seen.slots + s))
        sf_differ(sf_wrong_place, cell, (uint64_t)seen.slots, (uint64_t)e);
      seen.used++;
      return true;
    }
    if (e->cell == cell)
      return false;
  }
}

static void sf_state_thread_end(void) {
  if (seen.slots)
    sf_unmap(seen.slots, seen.size * sizeof *seen.slots);
  seen.slots = NULL;
  seen.size = seen.used = 0;
}

/* R1, R5 for what has checksums. */
static void sf_state_touch(const void *p, size_t length) {
  uintptr_t at = (uintptr_t)p;
  if (!sf_is_crc(at) || length == 0)
    return;
  for (uintptr_t cell = cell_of(at); cell < at + length; cell += SF_CELL)
    if (first_look(cell)) {
      uint32_t found = sf_cell_crc(cell), kept = *sf_check_of(cell);
      if (unlikely(found != kept))
        sf_state_wrong("state has changed at rest: its checksum does not fit,", cell, kept, found);
    }
}

SF_API void __sf_state_touch(const void *p, size_t length) { sf_state_touch(p, length); }

/* How much is looked at when a library is given a pointer and nobody says how far it reads. */
#define PEEK PAGE

static struct sf_span reach(uintptr_t at) {
  struct sf_span o = sf_object(at);
  size_t rest = o.at + o.length - at;
  return (struct sf_span){at, o.length == 0 ? 0 : rest < PEEK ? rest : PEEK};
}

/* A pointer that hardened code gives to a library. */
SF_API void __sf_state_give(const void *p) {
  uintptr_t at = (uintptr_t)p;
  if (sf_is_crc(at))
    sf_state_touch(p, reach(at).length);
}

/* Phases. */

/* The bytes of an entry, each as eight bits. */
static inline uint64_t mask_of(uint64_t where) {
  uint64_t mask = 0, missing = where >> 56;
  if (likely(missing == 0))
    return ~0ull;
  for (unsigned k = 0; k < 8; k++)
    mask |= missing >> k & 1 ? 0 : BYTES << 8 * k;
  return mask;
}

static inline uintptr_t word_of_state(uint64_t where) { return where & 0xffffffffffffffull; }
static inline uint64_t at(uintptr_t word) { return *(volatile uint64_t *)word; }

static inline void write_bytes(uintptr_t word, uint64_t missing, uint64_t value) {
  if (likely(missing == 0)) {
    *(volatile uint64_t *)word = value;
    return;
  }
  for (unsigned k = 0; k < 8; k++) /* neighbouring bytes may belong to another thread */
    if (!(missing >> k & 1))
      ((volatile uint8_t *)word)[k] = (uint8_t)(value >> 8 * k);
}

#define EACH_WORD(c, where)               \
  for (size_t i = 0; i < (c)->count; i++) \
    for (uint64_t where = (c)->entries[i].where, once = 1; once && sf_is_dup(word_of_state(where)); once = 0)
/* Nothing, both, before the first range. */
static inline const struct sf_range *range_first(const struct sf_context *c) { return (const struct sf_range *)c->ranges.base; }
static inline const struct sf_range *range_end(const struct sf_context *c) {
  size_t n = c->ranges.used / sizeof(struct sf_range);
  return n ? range_first(c) + n : range_first(c);
}
#define EACH_RANGE(c, r)                                                              \
  for (const struct sf_range *r = range_first(c), *end = range_end(c); r != end; r++) \
    if (sf_is_dup(r->at))

/* A library keeps all bytes of a word in which object and copy differ: the handler has written over them. */
static SF_COLD bool library_wrote(uintptr_t word, uint64_t mask) {
  for (unsigned k = 0; k < 8; k++)
    if (mask >> 8 * k & 1 && sf_difference(word + k, 1) == 0)
      return false;
  return true;
}

/* Memory is put back: what the first run has written had a copy that was the same. */
static void sf_state_mid(struct sf_context *c) {
  EACH_WORD(c, where)
  if (unlikely((at(word_of_state(where)) ^ at(word_of_state(where) + SF_COPY)) & mask_of(where)) &&
      !library_wrote(word_of_state(where), mask_of(where)))
    sf_differ("state has changed at rest: object and copy differ,", word_of_state(where), at(word_of_state(where)),
              at(word_of_state(where) + SF_COPY));
  EACH_RANGE(c, r)
  if (unlikely(!sf_same(r->at, r->length)))
    sf_differ("state has changed at rest: object and copy differ,", r->at, r->length, 0);
}

void sf_state_written(uintptr_t at, size_t length) {
  for (uintptr_t grain = at & ~(SF_GRAIN - 1); grain < at + length; grain += SF_GRAIN)
    *sf_mark_of(grain) = 0;
}

static void renew(uintptr_t at, size_t length) {
  for (uintptr_t cell = cell_of(at); cell < at + length; cell += SF_CELL)
    *sf_check_of(cell) = sf_cell_crc(cell);
}

/* The state has passed V. Objects with copies become N, which is what the copies are; cells get new checksums. */
static void sf_state_publish(struct sf_context *c) {
  uintptr_t last = 1;
  c->state = 2;
  for (size_t i = 0; i < c->count; i++) {
    uint64_t where = c->entries[i].where;
    uintptr_t word = word_of_state(where);
    if (sf_is_dup(word)) {
      write_bytes(word, where >> 56, c->news[i]);
      if (unlikely((at(word) ^ at(word + SF_COPY)) & mask_of(where)))
        sf_differ("an object could not be made like its copy", word, at(word), at(word + SF_COPY));
      *sf_mark_of(word) = 0;
    } else if (sf_is_crc(word) && cell_of(word) != last) {
      last = cell_of(word);
      renew(word, 8);
    }
  }
  for (const struct sf_range *r = range_first(c), *end = range_end(c); r != end; r++) {
    if (sf_is_dup(r->at)) {
      sf_copy((void *)r->at, c->arena.base + r->old + r->length, r->length);
      sf_reload();
      if (unlikely(!sf_equal((void *)r->at, (void *)(r->at + SF_COPY), r->length)))
        sf_differ("an object could not be made like its copy", r->at, r->length, 0);
      sf_state_written(r->at, r->length);
    } else if (sf_is_crc(r->at)) {
      renew(r->at, r->length);
    }
  }
}

/* After the objects were put back: their copies, which were the same before the second run (sf_state_mid), and checksums
   if they were renewed already. */
static void sf_state_put_back(struct sf_context *c) {
  EACH_WORD(c, where)
  write_bytes(word_of_state(where) + SF_COPY, where >> 56, at(word_of_state(where)));
  EACH_RANGE(c, r)
  sf_copy((void *)(r->at + SF_COPY), (void *)r->at, r->length);
  if (c->state != 2)
    return;
  for (size_t i = 0; i < c->count; i++)
    if (sf_is_crc(word_of_state(c->entries[i].where)))
      renew(word_of_state(c->entries[i].where), 8);
  const struct sf_range *r = (struct sf_range *)c->ranges.base, *end = r + c->ranges.used / sizeof *r;
  for (; r != end; r++)
    if (sf_is_crc(r->at))
      renew(r->at, r->length);
}

/* Outside handlers. */

/* Object and copy, or a cell and its checksum, fit: 1. */
static bool fits(uintptr_t at, size_t length) {
  if (sf_is_dup(at))
    return sf_same(at, length);
  if (unlikely(!sf_is_crc(at)))
    return true; /* a constructor that runs before prepare: nothing has a copy yet */
  for (uintptr_t cell = cell_of(at); cell < at + length; cell += SF_CELL)
    if (sf_cell_crc(cell) != *(volatile uint32_t *)sf_check_of(cell))
      return false;
  return true;
}

/* Other threads may be in the middle of writing this: in handlers, or between an object and its copy. What does not fit
   counts when it stays so while none is in a handler, through pauses in which a thread that was stopped between two
   instructions gets to run. Handlers that do not end within a millisecond may wait for a lock of this very thread: what
   they have in hand is left to the next look. */
#define LOOKS 8
#define PAUSE_NS 5000000
#define TRIES 100 /* for handlers to end: some microseconds without a pause, then ten at a time */
#define TRY_NS 10000

bool sf_state_stays_wrong(uintptr_t at, size_t length) {
  for (int look = 0, tries = 0; look < LOOKS;) {
    bool others = false;
    for (struct sf_context *c = atomic_load(&sf_contexts); c; c = c->next)
      others |= c != __sf_own && atomic_load(&c->counter) & 1;
    atomic_thread_fence(memory_order_seq_cst);
    if (fits(at, length) || (others && tries == 2 * TRIES))
      return false;
    if (others) {
      look = 0;
      if (tries++ < TRIES) {
        __builtin_ia32_pause();
        continue;
      }
    } else {
      look++;
    }
    uint64_t t[2] = {0, others ? TRY_NS : PAUSE_NS};
    sf_syscall(35 /* nanosleep */, (long)t, 0, 0, 0, 0, 0);
  }
  return true;
}

static SF_COLD void look_closer_state(uintptr_t at, size_t length) {
  /* Functions that a policy calls pure or local are not hardened, and run in the middle of a handler. */
  if (__sf_tls.phase != SF_OUTSIDE || !sf_state_stays_wrong(at, length))
    return;
  if (sf_is_dup(at)) {
    size_t wrong = sf_difference(at, length);
    if (wrong == length)
      return; /* now it fits */
    at += wrong;
    sf_state_wrong("state has changed at rest: object and copy differ,", at, *(uint8_t *)at, *(uint8_t *)(at + SF_COPY));
  }
  uintptr_t cell = cell_of(at);
  while (cell + SF_CELL < at + length && sf_cell_crc(cell) == *sf_check_of(cell))
    cell += SF_CELL;
  sf_state_wrong("state has changed at rest: its checksum does not fit,", cell, *sf_check_of(cell), sf_cell_crc(cell));
}

SF_API void __sf_state_read(const void *p, size_t length) {
  if (unlikely(!fits((uintptr_t)p, length)))
    look_closer_state((uintptr_t)p, length);
}

/* Before a store: what lies beside it in its cell must not be taken for right by the new checksum. */
SF_API void __sf_state_write(const void *p, size_t length) {
  uintptr_t at = (uintptr_t)p;
  if (sf_is_crc(at))
    __sf_state_read(p, length);
  else if (likely(sf_is_dup(at)))
    sf_state_written(at, length);
}

/* Before a call that may write less than that: what it leaves as it is gets a copy, or a checksum, with the rest. */
SF_API void __sf_state_room(const void *p, size_t length) {
  __sf_state_read(p, length);
  if (likely(sf_is_dup((uintptr_t)p)))
    sf_state_written((uintptr_t)p, length);
}

SF_API void __sf_state_written(const void *p, size_t length) {
  uintptr_t at = (uintptr_t)p;
  if (sf_is_crc(at)) {
    renew(at, length);
    return;
  }
  if (unlikely(!sf_is_dup(at)))
    return; /* before prepare, which makes the copies */
  switch (length) {
  case 8:
    *(volatile uint64_t *)(at + SF_COPY) = *(volatile uint64_t *)at;
    break;
  case 4:
    *(volatile uint32_t *)(at + SF_COPY) = *(volatile uint32_t *)at;
    break;
  default:
    sf_copy((void *)(at + SF_COPY), p, length);
  }
  sf_state_written(at, length);
}

/* A pointer that other code gives to a library which reads. */
SF_API void __sf_state_lend(const void *p) { __sf_state_read(p, reach((uintptr_t)p).length); }

/* A pointer to something that a library keeps to itself (a lock), or writes in a way that is not known here. */
SF_API void __sf_state_refuse(const void *p, const char *name) {
  static char what[256];
  size_t n = 0;
  for (const char *text = "a library function is given protected memory that it would write by itself: "; *text; text++)
    what[n++] = *text;
  for (const char *text = name; *text && n < sizeof what - 1; text++)
    what[n++] = *text;
  (void)p;
  sf_stop(what, "take the object (a lock, say) out of what is protected, or call it with a variable of the function's own");
}

void sf_state_wrong(const char *what, uintptr_t at, uint64_t first, uint64_t second) {
  if (__sf_tls.phase != SF_OUTSIDE) {
    /* A checksum tells that, and not what was there: beginning again would meet the same. */
    sf_tell(what, NULL, at, first, second, "stopped");
    sf_leave(122);
  }
  if (sf_is_dup(at) && sf_state_repair())
    return;
  sf_tell_state(what, at, first, second, "stopped");
  sf_leave(122);
}

SF_API const struct sf_state __sf_state = {
    .begin = sf_state_begin,
    .mid = sf_state_mid,
    .publish = sf_state_publish,
    .put_back = sf_state_put_back,
    .touch = sf_state_touch,
    .thread_end = sf_state_thread_end,
    .give = __sf_state_give,
    .repair = sf_state_repair,
    .take_dup = __sf_w_s_dup_malloc,
    .take_crc = __sf_w_s_crc_malloc,
    .free = sf_heap_free,
    .size = sf_heap_size,
};
