/*
 * --recover: after a mismatch, memory as it was before the handler, and both runs again, on another core if there is one.
 *
 * Linked only when asked for (`steadfast cc --recover`): core.c asks whether its table of operations is there (modes.h).
 *
 *     mismatch or crash in E1, E2 or V
 *       the runtime's tables lie where their second record says
 *       old values: from the log, if it has its sum and as many entries as the second log, else from that, if it has its sum; else stop
 *       has something been written whose old value nobody knows?   stop
 *       put back from O alone, read back (in R itself: from both logs, compared before each store)
 *       what the runs had taken from outside (input, calls of class once) is kept and given again
 *       memory they had been given is freed, locks stay held, also one that was just being taken
 *     begin again; at most 3 times, then stop
 *
 * A retry is not believed because it is later: both of its runs must agree with each other, as in any handler. When the
 * same difference comes again, the handler is not deterministic, or what it reads has changed in memory; no core is blamed.
 *
 * The second log has entries and bytes of its own, read from memory once more, with a sum and a count of its own. Entries of
 * whole words are made by store.S, in both logs, all others by log.c and ranges.c. Both are made before the
 * store: where a crash has left an entry or a range in the second log alone, nothing has been stored yet.
 *
 * Invariants
 *  1. What is put back comes from a log whose sum holds, and of ranges, whose checksum does.
 *  2. In code compiled with --recover nothing is stored that is not in both logs.
 *  3. Where the runtime's tables are is noted whenever one moves (sf_shadow_places): who moves one and does not say so is put right wrongly.
 *  4. General registers only where the log calls this file: vector registers of the program are live there.
 *
 * Not covered: stores that go elsewhere than was logged in objects compiled without --recover, to protected state (state.h) and in
 * wrappers of library functions, which look at nothing before they write; what a changed stack pointer pushes, and what other code
 * writes that a run has jumped into; and what had changed in memory before the handler began (state at rest, the driver's arguments).
 */
#define _GNU_SOURCE
#include "state.h"

#include <string.h>
#include <sys/mman.h>

/* The second log. */

struct sf_shadow {
  struct sf_entry *entries;
  size_t count, capacity;
  uint64_t sum;
  struct sf_buffer ranges; /* struct sf_range */
  struct sf_buffer bytes;  /* their old values */
  uint64_t places[32];     /* by `places_of` */
  uint64_t places_sum;
  uint64_t locks_used;
  const struct sf_handler *handler;
  uint64_t event; /* whose log it is */
};

#define logs_differ sf_logs_differ
static const char ranges_differ[] = "the two logs of old bytes differ";

/* The same as c->shadow, in two other places. */
static __thread struct sf_shadow *own __attribute__((tls_model("initial-exec"))), *spare __attribute__((tls_model("initial-exec")));

static SF_COLD struct sf_shadow *shadow_again(struct sf_context *c) {
  if (c != __sf_own) /* and nothing is to be written by it */
    sf_differ("the runtime was called for another thread", (uint64_t)c, (uint64_t)__sf_own, 0);
  c->shadow = own = own == spare ? own : c->shadow == spare ? spare : c->shadow; /* two of three */
  spare = own;
  return own;
}

_Static_assert(offsetof(struct sf_shadow, entries) == SF_SHADOW_ENTRIES && offsetof(struct sf_shadow, count) == SF_SHADOW_COUNT &&
                   offsetof(struct sf_shadow, sum) == SF_SHADOW_SUM,
               "offsets known to store.S");

/* Of an entry in its sum, as store.S has it. None weighs nothing: one that is lost shows. */
static inline uint64_t weigh_recover(uint64_t where, uint64_t old) { return (where ^ old) + 0x9e3779b97f4a7c15ull; }

static inline struct sf_shadow *shadow_of(struct sf_context *c) { return likely(c->shadow == own) ? own : shadow_again(c); }

/* Where the runtime's tables are, and how large: what must be right for anything to be put back. */
#define PLACES 31
static void places_of(struct sf_context *c, uint64_t *at[PLACES]) {
  struct sf_shadow *own = shadow_of(c);
  struct sf_buffer *buffers[] = {&c->arena, &c->ranges, &c->queue, &c->deferred, &c->locks, &c->parts, &c->kept, &own->ranges, &own->bytes};
  size_t n = 0;
  at[n++] = (uint64_t *)&__sf_tls.table;
  at[n++] = &__sf_tls.index_mask;
  at[n++] = (uint64_t *)&c->masks;
  at[n++] = (uint64_t *)&c->entries;
  at[n++] = (uint64_t *)&c->news;
  at[n++] = &c->capacity;
  at[n++] = &c->stack_low;
  at[n++] = &c->stack_high;
  at[n++] = &c->stack_bytes;
  at[n++] = (uint64_t *)&c->provenance;
  at[n++] = (uint64_t *)&c->shadow;
  at[n++] = (uint64_t *)&own->entries;
  at[n++] = &own->capacity;
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
    at[n++] = (uint64_t *)&buffers[i]->base;
    at[n++] = &buffers[i]->size;
  }
}
_Static_assert(13 + 2 * 9 == PLACES && PLACES <= 32, "places_of fills it");

static void sf_shadow_thread(struct sf_context *c) {
  struct sf_shadow *t = sf_map(sizeof *t);
  t->capacity = SF_WORDS;
  t->entries = sf_map(t->capacity * sizeof *t->entries);
  c->shadow = own = spare = t;
}

static void sf_shadow_thread_end(struct sf_context *c) {
  struct sf_shadow *t = c->shadow;
  c->shadow = own = spare = NULL;
  __sf_tls.shadow = __sf_tls.shadow_again = NULL;
  sf_unmap(t->entries, t->capacity * sizeof *t->entries);
  if (t->ranges.base)
    sf_unmap(t->ranges.base, t->ranges.size);
  if (t->bytes.base)
    sf_unmap(t->bytes.base, t->bytes.size);
  sf_unmap(t, sizeof *t);
}

/* Where either log is full. */
static void room_recover(struct sf_context *c) {
  const struct sf_shadow *t = shadow_of(c);
  __sf_tls.shadow_end = c->entries + (t->capacity < c->capacity ? t->capacity : c->capacity);
}

static void sf_shadow_places(struct sf_context *c) {
  uint64_t *at[PLACES];
  places_of(c, at);
  uint64_t sum = 0;
  for (size_t i = 0; i < PLACES; i++) {
    uint64_t place = *at[i];
    shadow_of(c)->places[i] = place;
    sum += place ^ i;
  }
  shadow_of(c)->places_sum = sum;
  room_recover(c);
}

static bool sf_shadow_has_entry(struct sf_context *c, uintptr_t at) {
  const struct sf_shadow *t = shadow_of(c);
  return at - (uintptr_t)t->entries < t->capacity * sizeof *t->entries;
}

static void sf_shadow_locks(struct sf_context *c, size_t used) { shadow_of(c)->locks_used = used; }

static SF_COLD void places_mend(struct sf_context *c) {
  uint64_t *at[PLACES], sum = 0;
  places_of(c, at);
  for (size_t i = 0; i < PLACES; i++)
    sum += shadow_of(c)->places[i] ^ i;
  /* Else it is this record that was struck. */
  for (size_t i = 0; i < PLACES && sum == shadow_of(c)->places_sum; i++)
    *at[i] = shadow_of(c)->places[i];
}

static bool places_differ(struct sf_context *c) {
  uint64_t *at[PLACES], other = 0;
  places_of(c, at);
  for (size_t i = 0; i < PLACES; i++)
    other |= *at[i] ^ shadow_of(c)->places[i];
  return other != 0;
}

static void sf_shadow_places_mend(struct sf_context *c) {
  c->handler = shadow_of(c)->handler;
  c->locks.used = shadow_of(c)->locks_used;
  places_mend(c);
}

/* Empty, and small again when it has been much larger than needed for a while (memory.c: sf_reset). Gives whether it is. */
static bool empty(struct sf_buffer *b) {
  b->idle = b->used < b->size / 4 ? b->idle + 1 : 0;
  b->used = 0;
  if (b->size > SF_KEPT && b->idle > SF_IDLE) {
    sf_unmap(b->base, b->size);
    *b = (struct sf_buffer){0};
    return true;
  }
  return false;
}

/* A handler begins. No entry is known to be a whole word. */
static void sf_shadow_begin(struct sf_context *c) {
  struct sf_shadow *t = shadow_of(c);
  /* They are noted when they change, so what is another now has been struck. */
  if (t->places_sum && places_differ(c)) {
    places_mend(c);
    sf_tell_mended(c, "where a table of the runtime is had changed");
  }
  t->handler = c->handler;
  do {
    c->queue.used = c->deferred.used = c->parts.used = c->ranges.used = c->arena.used = 0;
    sf_reload(); /* what is not 0 now would be walked by a repair */
  } while (c->queue.used | c->deferred.used | c->parts.used | c->ranges.used | c->arena.used);
  c->taking = NULL;
  __sf_tls.limit = NULL;
  __sf_tls.partial |= 1;
  t->count = t->sum = 0;
  bool moved = t->places_sum == 0 || empty(&t->ranges);
  moved |= empty(&t->bytes);
  if (t->capacity > SF_WORDS && c->capacity == SF_WORDS) {
    sf_unmap(t->entries, t->capacity * sizeof *t->entries);
    t->capacity = SF_WORDS;
    t->entries = sf_map(t->capacity * sizeof *t->entries);
    moved = true;
  }
  if (moved)
    sf_shadow_places(c);
  else
    room_recover(c);
  /* With copies of the state each word goes the long way. */
  __sf_tls.shadow = __sf_tls.shadow_again = c->state ? NULL : t;
}

/* Of an entry. By shifts that are done each time: a mask would be kept in a register, and go wrong for all alike. */
static inline uintptr_t address_recover(uint64_t where) {
  where <<= 8;
  sf_opaque(where);
  return where >> 8;
}

/* Bytes that are not meant may be another thread's, and other ones at the second reading. */
static inline uint64_t meant(uint64_t where) {
  uint64_t mask = 0;
  if (likely(where >> 56 == 0))
    return ~0ull;
  for (unsigned k = 0; k < 8; k++)
    if (!(where >> (56 + k) & 1))
      mask |= 0xffull << 8 * k;
  return mask;
}

static void sf_shadow_word(struct sf_context *c, uint64_t where, const struct sf_entry *first) {
  struct sf_shadow *t = shadow_of(c);
  if (t->count == t->capacity) {
    struct sf_entry *larger = sf_map(2 * t->capacity * sizeof *larger);
    sf_copy(larger, t->entries, t->count * sizeof *larger);
    sf_unmap(t->entries, t->capacity * sizeof *larger);
    t->entries = larger;
    t->capacity *= 2;
    sf_shadow_places(c);
  }
  struct sf_entry *e = t->entries + t->count;
  sf_opaque(e);
  if (e != t->entries + t->count)
    sf_differ(sf_entry_elsewhere, where, (uint64_t)(t->entries + t->count), (uint64_t)e); /* nothing is written yet */
  uint64_t old = sf_live(address_recover(where));
  e->where = where;
  e->old = old;
  sf_reload();
  if (e != t->entries + t->count) {
    places_mend(c);
    sf_differ((uintptr_t)e - (uintptr_t)t->entries < t->capacity * sizeof *e ? sf_entry_elsewhere : sf_wrong_place, where,
              (uint64_t)(t->entries + t->count), (uint64_t)e);
  }
  /* While nothing is stored: of two logs that differ, nothing tells which is right. */
  if (e->where != first->where || (e->old ^ first->old) & meant(where))
    sf_differ(logs_differ, where, (uint64_t)first, first->where);
  t->sum += weigh_recover(where, old); /* not what the entry says, which may be damaged */
  t->count++;
}

static uint32_t sf_shadow_range_crc(const struct sf_range *r, const uint8_t *old) {
  uint64_t head[3] = {r->at, r->length, r->after};
  return sf_crc32c(sf_crc32c(0, head, sizeof head), old, r->length);
}

static void sf_shadow_range(struct sf_context *c, const struct sf_range *made) {
  struct sf_shadow *t = shadow_of(c);
  struct sf_range r = *made;
  r.old = t->bytes.used;
  uint8_t *old = sf_grow(&t->bytes, r.length);
  sf_copy(old, (const void *)sf_own((void *)r.at), r.length);
  r.crc = sf_shadow_range_crc(&r, old);
  /* The first was made of what the program named, this one of the place that it noted. */
  if (r.crc != made->crc || r.after != t->count)
    sf_differ(ranges_differ, r.at, r.length, r.after);
  *(struct sf_range *)sf_grow(&t->ranges, sizeof r) = r;
}

static bool holds_recover(const struct sf_range *r, const struct sf_buffer *bytes, size_t words) {
  return r->after <= words && r->length <= bytes->used && r->old <= bytes->used - r->length &&
         sf_shadow_range_crc(r, bytes->base + r->old) == r->crc;
}

static void sf_shadow_opened(struct sf_context *c) { shadow_of(c)->event = c->event; }

static uint64_t sf_shadow_event(struct sf_context *c) { return shadow_of(c)->event; }

static bool sf_shadow_even(struct sf_context *c) { return c->shadow == own && c->entries + own->count == __sf_tls.cursor; }

static bool sf_shadow_has_range(struct sf_context *c, size_t index, uintptr_t at, size_t length) {
  const struct sf_range *r = (struct sf_range *)shadow_of(c)->ranges.base + index;
  return (index + 1) * sizeof *r <= shadow_of(c)->ranges.used && r->at == at && r->length == length;
}

static bool sf_shadow_ranges_hold(struct sf_context *c) {
  const struct sf_range *r = (struct sf_range *)c->ranges.base;
  size_t count = c->ranges.used / sizeof *r;
  if (count * sizeof *r != c->ranges.used || c->ranges.used != shadow_of(c)->ranges.used)
    return false;
  for (size_t i = 0; i < count; i++)
    if (!holds_recover(r + i, &c->arena, c->count))
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

static bool shadow_sums_up(const struct sf_shadow *t) {
  uint64_t total = 0;
  if (t->count > t->capacity)
    return false;
  for (size_t i = 0; i < t->count; i++)
    total += weigh_recover(t->entries[i].where, t->entries[i].old);
  return total == t->sum;
}

/* What is put back is compared with the second log before each store, and its place once more behind it. So a crash on the way
   has not been led there by bytes that went elsewhere. */

typedef volatile uint64_t loose64 __attribute__((aligned(1), may_alias));

/* Of the bytes [k, 8) of a word: as many from k on as one aligned store may write. */
static inline unsigned widest(uint64_t where, unsigned k) {
  unsigned missing = (unsigned)(where >> (56 + k)), n = k & 1 ? 1 : k & 2 ? 2 : 4;
  while (missing & ((1u << n) - 1) && n > 1)
    n /= 2;
  return missing & 1 ? 0 : n;
}

/* Of a store whose address looks wrong behind it: it came where it should, if what it wrote is there, which it was not before. */
static inline bool landed(uint64_t now, uint64_t value, uint64_t mask) { return ((now ^ value) & mask) == 0; }

/* Where a store went, by the register that it had. */
static void came_to(uintptr_t at, unsigned n, uint64_t mask, const volatile struct sf_entry *e, const volatile struct sf_entry *f) {
  uintptr_t word = at & ~7ull;
  if ((word != address_recover(f->where) && word != address_recover(e->where)) || (at & 7) + n > 8)
    sf_differ(landed(sf_live(address_recover(f->where)), f->old, mask) ? logs_differ : sf_wrong_place, at, e->where, f->where);
}

/* Neighbouring bytes may belong to another thread: only these are written, none of which lies in another word. Gives the bytes that
   were. */
static uint64_t put_part(const volatile struct sf_entry *e, const volatile struct sf_entry *f, uint64_t before) {
  uint64_t where = e->where, old = e->old, put = 0;
  for (unsigned k = 0, n; k < 8; k += n + !n) {
    n = widest(where, k);
    uintptr_t at = address_recover(where) + k;
    if (k + n > 8)
      sf_differ(logs_differ, at, k, n);
    uint64_t part = old >> 8 * k, mask = n ? ~0ull >> (64 - 8 * n) << 8 * k : 0;
    if (((before ^ old) & mask) == 0) {
      put |= n ? 0xffull >> (8 - n) << k : 0;
      continue;
    }
    sf_opaque(at);
    if (at != address_recover(f->where) + k)
      sf_differ(logs_differ, at, where, f->where);
    if (n == 4) {
      *(volatile uint32_t *)at = (uint32_t)part;
      sf_opaque(at);
      came_to(at, 4, mask, e, f);
      put |= 0xfull << (at & 7);
    } else if (n == 2) {
      *(volatile uint16_t *)at = (uint16_t)part;
      sf_opaque(at);
      came_to(at, 2, mask, e, f);
      put |= 0x3ull << (at & 7);
    } else if (n == 1) {
      *(volatile uint8_t *)at = (uint8_t)part;
      sf_opaque(at);
      came_to(at, 1, mask, e, f);
      put |= 0x1ull << (at & 7);
    }
  }
  return put;
}

/* A neighbour that has changed may be another thread's doing: only where the bytes were not those that should be. */
static SF_COLD void look_again(uintptr_t word, uint64_t mask, uint64_t before, uint64_t bytes, uint64_t put) {
  sf_differ(((sf_live(word) ^ before) & ~mask) == 0 ? logs_differ : sf_wrong_place, word, bytes, put);
}

static struct sf_put put_words(struct sf_context *c, size_t from, size_t to) {
  struct sf_shadow *t = shadow_of(c);
  struct sf_put put = {0, 0};
  size_t i = to, j = to;
  sf_opaque(j);
  while (i > from) {
    const volatile struct sf_entry *e = &c->entries[--i], *f = &t->entries[--j];
    uint64_t where = e->where, old = e->old;
    if (likely(where >> 56 == 0)) { /* a whole word: the same as below, with nothing to be left out */
      if (unlikely(i >= c->count || j >= t->count || where != f->where || old != f->old))
        sf_differ(logs_differ, (uint64_t)e, where, f->where);
      uintptr_t word = where;
      sf_opaque(word);
      if (sf_live(f->where) != old) {
        if (unlikely(word != f->where))
          sf_differ(logs_differ, word, where, f->where);
        *(volatile uint64_t *)word = old;
      }
      sf_opaque(word);
      uintptr_t at = f->where;
      if (unlikely(word != at))
        sf_differ(word == e->where || sf_live(at) == old ? logs_differ : sf_wrong_place, word, at, e->where);
      put.wrong |= sf_live(at) ^ f->old;
      put.sum += at ^ e->old;
      continue;
    }
    uint64_t mask = meant(where);
    if (i >= c->count || j >= t->count || where != f->where || (old ^ f->old) & mask)
      sf_differ(logs_differ, (uint64_t)e, where, f->where);
    uintptr_t word = address_recover(where);
    uint64_t before = sf_live(address_recover(f->where));
    sf_opaque(word);
    /* If it is there, no store is made: so one that is made is seen by what comes of it. */
    if (((before ^ old) & mask) != 0) {
      uint64_t were = put_part(e, f, before), bytes = f->where >> 56 ^ 0xff;
      if (were != bytes)
        look_again(word, mask, before, bytes, were);
    }
    sf_opaque(word);
    where = f->where;
    if (word != address_recover(where))
      sf_differ(word == address_recover(e->where) || landed(sf_live(address_recover(where)), old, mask) ? logs_differ : sf_wrong_place,
                word, where, e->where);
    put.wrong |= (sf_live(address_recover(where)) ^ f->old) & meant(where);
    put.sum += where ^ e->old;
  }
  return put;
}

static inline uint64_t now_at(uintptr_t at, size_t bytes) { return bytes == 8 ? *(const loose64 *)at : *(volatile uint8_t *)at; }

/* n bytes, k from the beginning by the first log and l by the second: a number of its own in each place that it is called from, so that
   none that goes wrong makes a store wider than what has been looked at. */
static inline __attribute__((always_inline)) void put_piece(const struct sf_shadow *t, const struct sf_context *c,
                                                            const volatile struct sf_range *r, const volatile struct sf_range *s, size_t k,
                                                            size_t l, size_t n) {
  uint64_t value = now_at((uintptr_t)c->arena.base + r->old + k, n);
  if (value != now_at((uintptr_t)t->bytes.base + s->old + l, n))
    sf_differ(ranges_differ, r->at, k, l);
  if (now_at(s->at + l, n) == value)
    return;
  uintptr_t at = r->at + k;
  sf_opaque(at);
  if (k + n > r->length || l + n > s->length || at != s->at + l)
    sf_differ(ranges_differ, at, k, l);
  if (n == 8)
    *(loose64 *)at = value;
  else
    *(volatile uint8_t *)at = (uint8_t)value;
  sf_opaque(at);
  if (at != s->at + l)
    sf_differ(at == r->at + k || landed(now_at(s->at + l, n), value, ~0ull) ? ranges_differ : sf_wrong_place, at, k, l);
}

static void put_range(struct sf_context *c, size_t index) {
  const struct sf_shadow *t = shadow_of(c);
  const volatile struct sf_range *r = (struct sf_range *)c->ranges.base + index, *s = (struct sf_range *)t->ranges.base + index;
  size_t k = 0, l = 0;
  for (; k + 8 <= r->length; k += 8, l += 8) {
    sf_opaque(l);
    put_piece(t, c, r, s, k, l, 8);
  }
  for (; k < r->length; k++, l++) {
    sf_opaque(l);
    put_piece(t, c, r, s, k, l, 1);
  }
}

static struct sf_put sf_shadow_put_back(struct sf_context *c) {
  size_t to = c->count;
  struct sf_put all = {0, 0}, put;
  for (size_t i = c->ranges.used / sizeof(struct sf_range); i-- > 0;) {
    const struct sf_range *r = (struct sf_range *)c->ranges.base + i;
    put = put_words(c, r->after, to);
    put_range(c, i);
    sf_reload();
    all.wrong |= put.wrong | !sf_equal((void *)r->at, c->arena.base + r->old, r->length);
    all.sum += put.sum;
    to = r->after;
  }
  put = put_words(c, 0, to);
  return (struct sf_put){all.wrong | put.wrong, all.sum + put.sum};
}

/* As far as they go. The second may have one more: it is made before the first has it, and that before the store. The first may have
   more: a fault led past the second. */
static bool shadow_agrees(struct sf_context *c) {
  const struct sf_shadow *t = shadow_of(c);
  size_t count = t->count < c->count ? t->count : c->count;
  uint64_t wrong = 0;
  for (size_t i = 0; i < count; i++) {
    uint64_t where = c->entries[i].where, bits = c->entries[i].old ^ t->entries[i].old;
    wrong |= where ^ t->entries[i].where;
    if (bits)
      wrong |= bits & meant(where);
  }
  return wrong == 0;
}

static const char *sf_shadow_mend(struct sf_context *c) {
  struct sf_shadow *t = shadow_of(c);
  bool begun = t->event == c->event;
  bool second = begun && t->count <= c->capacity && shadow_sums_up(t);
  /* An entry that adds nothing to the first's sum (a word that holds its own address; one that was never made) may be missing there,
     or be one of an earlier handler. */
  while (second && c->count <= c->capacity && c->count > t->count && c->entries[c->count - 1].where == c->entries[c->count - 1].old)
    c->count--;
  __sf_tls.cursor = c->entries + c->count;
  bool first = sums_up(c->entries, c->count, c->capacity, __sf_tls.sum);
  if (first && second && !shadow_agrees(c))
    return "the two logs of the old values differ, and both have their sum";
  if (!first || (second && t->count > c->count)) {
    if (!second)
      return "neither log of the old values has its sum";
    sf_copy(c->entries, t->entries, t->count * sizeof *t->entries);
    c->count = t->count;
    __sf_tls.cursor = c->entries + c->count;
    __sf_tls.sum = 0;
    for (size_t i = 0; i < c->count; i++)
      __sf_tls.sum += c->entries[i].where ^ c->entries[i].old;
  }
  /* A range is in the second log first, and in both before it is written: the one that has more of them is whole. */
  const struct sf_range *shadows = (struct sf_range *)t->ranges.base;
  size_t count = c->ranges.used % sizeof *shadows ? 0 : c->ranges.used / sizeof *shadows;
  size_t shadow_count = !begun || t->ranges.used % sizeof *shadows ? 0 : t->ranges.used / sizeof *shadows;
  if (c->ranges.used % sizeof *shadows && t->ranges.used % sizeof *shadows)
    return "neither log of the old bytes has its end";
  if (count < shadow_count || c->ranges.used % sizeof *shadows) {
    if (t->ranges.used > c->ranges.size) {
      c->ranges.used = 0; /* from the second, all of them */
      sf_enlarge(&c->ranges, t->ranges.used);
      count = 0;
    }
    c->ranges.used = t->ranges.used;
  }
  for (size_t i = 0; i < count || i < shadow_count; i++) {
    struct sf_range *r = (struct sf_range *)c->ranges.base + i;
    if (i < count && holds_recover(r, &c->arena, c->count))
      continue;
    if (i >= shadow_count || !holds_recover(shadows + i, &t->bytes, c->count))
      return "neither copy of the old bytes of a range has its checksum";
    *r = shadows[i];
    r->old = c->arena.used;
    /* As restore.c expects it: old bytes, and room for the new. */
    sf_copy(sf_grow(&c->arena, 2 * r->length), t->bytes.base + shadows[i].old, r->length);
  }
  return NULL;
}

/* crashes.c */
void sf_recover_thread(void);
void sf_recover_move(struct sf_context *);
void sf_recover_done(struct sf_context *);

SF_API const struct sf_recover __sf_recover = {
    .thread = sf_recover_thread,
    .move = sf_recover_move,
    .done = sf_recover_done,
    .shadow_thread = sf_shadow_thread,
    .shadow_thread_end = sf_shadow_thread_end,
    .shadow_begin = sf_shadow_begin,
    .shadow_opened = sf_shadow_opened,
    .shadow_event = sf_shadow_event,
    .shadow_word = sf_shadow_word,
    .shadow_range = sf_shadow_range,
    .shadow_range_crc = sf_shadow_range_crc,
    .shadow_locks = sf_shadow_locks,
    .shadow_places = sf_shadow_places,
    .shadow_places_mend = sf_shadow_places_mend,
    .shadow_mend = sf_shadow_mend,
    .shadow_has_entry = sf_shadow_has_entry,
    .shadow_has_range = sf_shadow_has_range,
    .shadow_even = sf_shadow_even,
    .shadow_ranges_hold = sf_shadow_ranges_hold,
    .shadow_put_back = sf_shadow_put_back,
};
