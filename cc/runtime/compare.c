/* V 1, 4, 5: the second run wrote the same words and ranges, and memory is as the first run left it. */
#include "log.h"

/* Which word differs: the loop over all of them has only said that one does. */
static SF_COLD void look_closer_compare(struct sf_context *c) {
  uint64_t epoch = __sf_tls.epoch_key;
  for (size_t i = 0; i < c->count; i++) {
    uint64_t bytes = bytes_of(&c->entries[i]);
    if (bytes == 0)
      continue; /* read only */
    uintptr_t word = word_of(&c->entries[i]);
    uint64_t expected = word << SF_WORD_SHIFT | epoch | BYTES;
    for (size_t s = home(word), gone = 0;; s = next(s, &gone)) {
      uint64_t tag = *tag_at(s);
      if (((tag ^ expected) & ~BYTES) == 0) {
        if ((tag & bytes) != bytes)
          sf_differ("memory is written in the first run only", word, bytes, tag & bytes);
        break;
      }
      uint64_t e = tag & EPOCH_MASK;
      if (e != epoch && e != epoch - ((uint64_t)1 << SF_EPOCH_SHIFT))
        sf_differ("memory is written in the first run only", word, bytes, 0);
    }
    uint64_t now = sf_live((uintptr_t)sf_own((void *)word)), mask = spread(bytes);
    if ((now ^ c->news[i]) & mask)
      sf_differ("the runs leave different values", word, c->news[i] & mask, now & mask);
  }
}

/* A whole word: no bytes are missing; a damaged address does not have its tag. */
static inline uint64_t compare_word(const struct sf_entry *e, const uint64_t *news, const uint8_t *table, uint64_t mask, uint64_t epoch) {
  uintptr_t word = e->where;
  uint64_t tag = *(const volatile uint64_t *)(table + (word & mask));
  return (tag ^ (word << SF_WORD_SHIFT | epoch)) | (sf_live(word) ^ *news);
}

/* The same where words may be logged in part. A word's upper bits are shifted out of its tag, and so are the bytes that are missing.
   With copies, the second run has written those. */
__attribute__((always_inline)) static inline uint64_t compare_part(const struct sf_entry *e, const uint64_t *news, const uint8_t *table,
                                                                   uint64_t mask, uint64_t epoch, bool copies) {
  uint64_t where = e->where, missing = where >> 56;
  uintptr_t word = where & 0xffffffffffffffull, at = copies ? (uintptr_t)sf_own((void *)word) : word;
  uint64_t tag = *(const volatile uint64_t *)(table + (word & mask));
  uint64_t other_tag = tag ^ (word << SF_WORD_SHIFT | epoch), other = sf_live(at) ^ *news;
  if (likely(missing == 0))
    return other_tag | other;
  if (missing == BYTES)
    return 0; /* read only */
  return (other_tag & ~missing) | (other & spread(missing ^ BYTES));
}

void sf_compare_words(struct sf_context *c) {
  uint64_t epoch = __sf_tls.epoch_key | BYTES, all = 0, mask = __sf_tls.index_mask;
  const uint8_t *table = (const uint8_t *)__sf_tls.table;
  const struct sf_entry *e = c->entries, *end = e + c->count;
  const uint64_t *news = c->news;
  if (likely(__sf_tls.partial == 0)) {
    for (; end - e >= 4; e += 4, news += 4)
      all |= compare_word(e, news, table, mask, epoch) | compare_word(e + 1, news + 1, table, mask, epoch) |
             compare_word(e + 2, news + 2, table, mask, epoch) | compare_word(e + 3, news + 3, table, mask, epoch);
    for (; e != end; e++, news++)
      all |= compare_word(e, news, table, mask, epoch);
  } else if (likely(!sf_state())) {
    for (; e != end; e++, news++)
      all |= compare_part(e, news, table, mask, epoch, false);
  } else {
    for (; e != end; e++, news++)
      all |= compare_part(e, news, table, mask, epoch, true);
  }
  if (unlikely(all != 0))
    look_closer_compare(c); /* returns if words merely lie outside their home slots */
  sf_opaque(e);
  if (unlikely(e != c->entries + c->count || news != c->news + c->count))
    sf_differ("the comparison did not reach the end of the log", (uint64_t)e, c->count, 0);
}

void sf_compare_ranges(struct sf_context *c) {
  size_t count = range_count(c);
  if (unlikely(c->range_cursor != count))
    sf_differ("a range is written in the first run only", range_at(c, c->range_cursor)->at, count, c->range_cursor);
  for (size_t i = 0; i < count; i++) {
    struct sf_range *r = range_at(c, i);
    if (unlikely(!sf_equal(sf_own((void *)r->at), c->arena.base + r->old + r->length, r->length)))
      sf_differ("the runs leave different bytes in a range", r->at, r->length, 0);
  }
}
