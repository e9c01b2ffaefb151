/* Memory as it was when the handler began: between the runs, where new values are kept first (R), and before a retry. */
#include "log.h"

/* A store, and then the registers that it had for its place: the compiler would take another one to look at it. */
static inline void put_8(uintptr_t *at, uint64_t value) { __asm__ volatile("movq %1, (%0)" : "+r"(*at) : "r"(value) : "memory"); }
static inline void put_4(uintptr_t *at, uint32_t value) { __asm__ volatile("movl %1, (%0)" : "+r"(*at) : "r"(value) : "memory"); }
static inline void put_2(uintptr_t *at, uint16_t value) { __asm__ volatile("movw %w1, (%0)" : "+r"(*at) : "r"(value) : "memory"); }
static inline void put_1(uintptr_t *at, uint8_t value) { __asm__ volatile("movb %b1, (%0)" : "+r"(*at) : "q"(value) : "memory"); }
/* The last four, or two, of `length` bytes from `at` on. */
static inline void put_last_4(uintptr_t *at, uint64_t *length, uint32_t value) {
  __asm__ volatile("movl %2, -4(%0,%1)" : "+r"(*at), "+r"(*length) : "r"(value) : "memory");
}
static inline void put_last_2(uintptr_t *at, uint64_t *length, uint16_t value) {
  __asm__ volatile("movw %w2, -2(%0,%1)" : "+r"(*at), "+r"(*length) : "r"(value) : "memory");
}

/* Of a word. Neighbouring bytes may belong to another thread: only these are written. They are mostly one run, of a field or a text:
   the widest stores that its ends allow, of which the second may repeat bytes of the first. Gives the bytes that were written, by what
   the stores had for place and length; bits above these eight tell of other places, or of stores that are too wide. Inline: its caller
   compares the word that it has, and would not see one that changes on the way to here. */
static inline __attribute__((always_inline)) uint64_t put_bytes_restore(uintptr_t word, uint64_t old, uint64_t bytes) {
  uint64_t put = 0;
  while (bytes) {
    uint64_t first = (uint64_t)__builtin_ctzll(bytes), length = (uint64_t)__builtin_ctzll(~(bytes >> first));
    sf_opaque(first); /* or its upper bits would be known to be none */
    uintptr_t at = word + first;
    uint64_t part = old >> 8 * first, beyond;
    if (length >= 4) {
      put_4(&at, (uint32_t)part);
      uint64_t last = part >> 8 * (length - 4);
      put_last_4(&at, &length, (uint32_t)last);
      beyond = (length - 4) & ~7ull;
    } else if (length >= 2) {
      put_2(&at, (uint16_t)part);
      uint64_t last = part >> 8 * (length - 2);
      put_last_2(&at, &length, (uint16_t)last);
      beyond = (length - 2) & ~1ull;
    } else {
      put_1(&at, (uint8_t)part);
      sf_opaque(length); /* whatever the comparison has said of it */
      beyond = length - 1;
    }
    put |= ((1ull << length) - 1) << first | (((at - word) ^ first) | (first & ~7ull) | beyond) << 8;
    bytes &= ~0ull << (first + length);
  }
  return put;
}

/* One pass suffices while entries alone are concerned: no two of them hold the same byte. Each is read back at an address that
   is taken from the log once more: a store that goes elsewhere does not show there. Gives the bits that do not. What was put back
   is summed up: entries of an earlier handler lie behind the last. Read back in a loop of its own: a word whose bytes were just
   written apart is given by the processor only when they have reached the cache. */
static inline void reset_words(struct sf_context *c, size_t from, size_t to, struct sf_put *done) {
  uint64_t wrong = 0, went = 0;
  for (size_t i = to; i-- > from;) {
    uint64_t old = c->entries[i].old, bytes = bytes_of(&c->entries[i]);
    uintptr_t word = word_of(&c->entries[i]);
    sf_opaque(bytes); /* what is used is what is compared below */
    sf_opaque(word);
    if (likely(bytes == BYTES)) {
      put_8(&word, old);
    } else {
      uint64_t put = bytes > BYTES ? 0 : put_bytes_restore(word, old, bytes);
      if (SF_CHECKED(PLACES) && unlikely(put != bytes))
        sf_differ(sf_wrong_place, word, bytes, put);
    }
    if (!SF_CHECKED(PLACES))
      continue;
    uint64_t where = ((const volatile struct sf_entry *)c->entries)[i].where;
    /* Where it went: the right place may have had the old value anyway. */
    wrong |= (where ^ word) << 8 | (where >> 56 ^ bytes ^ BYTES);
    went += weigh(where, old);
  }
  done->sum += went;
  for (size_t i = to; i-- > from;) {
    const volatile struct sf_entry *e = &c->entries[i];
    uint64_t where = e->where;
    wrong |= (sf_live(where & 0xffffffffffffffull) ^ e->old) & (likely(where >> 56 == 0) ? ~0ull : spread(where >> 56 ^ BYTES));
  }
  done->wrong |= wrong;
}

/* Memory as it was when the handler began, from O alone. The sum is that of the log if each of its entries was put back once, and
   nothing else. */
struct sf_put sf_put_back(struct sf_context *c) {
  size_t to = c->count;
  struct sf_put put = {0, 0};
  for (size_t i = range_count(c); i-- > 0;) {
    struct sf_range *r = range_at(c, i);
    reset_words(c, r->after, to, &put);
    const uint8_t *end = copy_bytes((void *)r->at, c->arena.base + r->old, r->length);
    sf_reload();
    ends_at(end, (const uint8_t *)r->at + r->length, r->length); /* not of another length than the range has */
    put.wrong |= !sf_equal((void *)r->at, c->arena.base + r->old, r->length);
    to = r->after;
  }
  reset_words(c, 0, to, &put);
  return put;
}

/* N from memory and memory from O, where every entry is a whole word. Read back, as in Figure 4b: what does not hold is
   collected and looked at once. O is also summed up again: a log that has changed since must not be put back. */
static inline uint64_t swap_word(const struct sf_entry *e, volatile uint64_t *news, uint64_t *total) {
  uint64_t where = e->where, old = e->old;
  volatile uint64_t *at = (volatile uint64_t *)where; /* whole words: no bytes are missing */
  uint64_t now = *at;
  *news = now;
  *at = old;
  *total += weigh(where, old);
  return (*news ^ now) | (*at ^ old);
}

static inline uint64_t swap_words(struct sf_context *c, uint64_t *sum) {
  uint64_t wrong = 0, total = 0;
  volatile uint64_t *news = c->news;
  const struct sf_entry *e = c->entries, *end = e + c->count;
  for (; end - e >= 4; e += 4, news += 4) {
    uint64_t a = swap_word(e, news, &total), b = swap_word(e + 1, news + 1, &total);
    uint64_t x = swap_word(e + 2, news + 2, &total), y = swap_word(e + 3, news + 3, &total);
    wrong |= a | b | x | y;
  }
  for (; e != end; e++, news++)
    wrong |= swap_word(e, news, &total);
  *sum = total;
  return wrong;
}

/* With --recover: a value of the first run has come where it belongs. In its place was the opposite, so what differs from it by a bit
   has been changed there. */
static SF_COLD void see_new_again(size_t i, uint64_t value);

static inline __attribute__((always_inline)) void see_new(size_t i, uint64_t value) {
  if (unlikely((*(volatile uint64_t *)&own_again()->news[i] ^ value) != 0))
    see_new_again(i, value);
}

static void see_new_again(size_t i, uint64_t value) {
  uint64_t other = *(volatile uint64_t *)&own_again()->news[i] ^ value;
  sf_differ(__builtin_popcountll(other) <= 1 ? "the log did not keep a new value" : sf_wrong_place, (uint64_t)__sf_own->news, i, value);
}

/* R: new values are kept, old values put back. */
uint64_t sf_change_over(struct sf_context *c, size_t ranges, uint64_t *sum_of_old) {
  if (likely((__sf_tls.partial | ranges) == 0))
    return swap_words(c, sum_of_old);
  uint64_t sum = 0, wrong = 0;
  size_t count = c->count;
  bool shadow = c->shadow != NULL;
  for (size_t i = 0; i < count; i++) {
    sum += weigh(c->entries[i].where, c->entries[i].old);
    uint64_t now = sf_live(word_of(&c->entries[i]));
    if (unlikely(shadow)) {
      /* What an earlier handler has left there may be the same, and hide that it came elsewhere. */
      *(volatile uint64_t *)&c->news[i] = ~now;
      see_new(i, ~now);
      *(volatile uint64_t *)&c->news[i] = now;
      see_new(i, now);
      continue;
    }
    uintptr_t at = (uintptr_t)&c->news[i];
    sf_opaque(at);
    put_8(&at, now);
    if (SF_CHECKED(PLACES) && unlikely(at != (uintptr_t)&own_again()->news[i]))
      sf_differ(sf_wrong_place, at, i, now);
    wrong |= *(volatile uint64_t *)&c->news[i] ^ now;
  }
  /* Before anything is put back: an address in the log that has changed is somebody else's. */
  if (unlikely(sum != __sf_tls.sum))
    sf_differ("the log of old values has changed", (uint64_t)c->entries, __sf_tls.sum, sum);
  if (unlikely(c->shadow != NULL)) {
    if (unlikely(!key_holds(c)))
      sf_differ("the key of the first run has changed", __sf_tls.epoch_key, c->epoch, __sf_tls.key_whole);
    if (unlikely(!__sf_recover.shadow_even(c))) /* that they agree is seen where each word is put back */
      sf_differ(sf_logs_differ, (uint64_t)c->entries, count, 0);
    if (unlikely(!__sf_recover.shadow_ranges_hold(c)))
      sf_differ("the log of old bytes has changed", (uint64_t)c->ranges.base, ranges, 0);
  }
  for (size_t i = 0; i < ranges; i++) {
    struct sf_range *r = range_at(c, i);
    copy_bytes(c->arena.base + r->old + r->length, (void *)r->at, r->length);
  }
  struct sf_put put = unlikely(c->shadow != NULL) ? __sf_recover.shadow_put_back(c) : sf_put_back(c);
  wrong |= put.wrong;
  if (SF_CHECKED(PLACES))
    sum = put.sum;
  *sum_of_old = sum;
  return wrong;
}

/* Memory as it was when the handler began. If the log cannot be trusted or did not help: why. */
const char *sf_roll_back(struct sf_context *c) {
  if (__sf_tls.phase == SF_E1)
    c->count = (size_t)(__sf_tls.cursor - c->entries);
  if (unlikely(c->shadow != NULL)) {
    const char *why = __sf_recover.shadow_mend(c);
    if (why)
      return why;
    goto sound;
  }
  uint64_t sum = 0;
  if (c->count > c->capacity)
    return "the log has lost its end";
  for (size_t i = 0; i < c->count; i++)
    sum += weigh(c->entries[i].where, c->entries[i].old);
  /* Between the sum and the cursor (store.S) an entry is whole and not yet counted. */
  const struct sf_entry *begun = c->entries + c->count;
  if (sum != __sf_tls.sum && __sf_tls.phase == SF_E1 && c->count < c->capacity) {
    sum += weigh(begun->where, begun->old);
    c->count++;
  }
  if (sum != __sf_tls.sum)
    return "the old values do not have their sum";
sound:
  if (sf_put_back(c).wrong)
    return "memory does not show the old values that were put back";
  /* Before the second run copies are as they were, and may be all that is right. */
  if (unlikely(sf_state()) && __sf_tls.phase == SF_E2)
    __sf_state.put_back(c);
  return NULL;
}
