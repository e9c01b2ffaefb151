/*
 * The log of old values, as the files see it that fill, read and put it back: tags of words, entries, ranges.
 *
 * Inline: a check looks at memory once more, where the caller's registers may be what went wrong.
 */
#ifndef STEADFAST_LOG_H
#define STEADFAST_LOG_H

#include "state.h"

#define EPOCH_MASK ((((uint64_t)1 << SF_EPOCH_BITS) - 1) << SF_EPOCH_SHIFT)
#define BYTES ((uint64_t)SF_TAG_BYTES)
#define PAGE 4096ull
/* Bytes that are copied by words, or whose checksum is taken, in less time than other ways need to begin. */
#define SHORT 64

/* Of differences: what a retry asks about (retry.c). */
extern const char sf_not_logged[], sf_range_not_logged[], sf_astray[];

/* memory.c */
void sf_reset(struct sf_buffer *); /* after a handler: empty, and small again when it has been much larger than needed for a while */

/* log.c: the table and the words. */
void sf_table_new(struct sf_context *, size_t slots);
void sf_table_of_log(struct sf_context *, size_t slots, uint64_t *table); /* for a second run that is another process's */
void sf_tables_drop(struct sf_context *);  /* those that were grown out of */
void sf_buffers_shrink(struct sf_context *); /* outside handlers, before those that were used are empty */
void sf_log_shrink(struct sf_context *);   /* outside handlers */
void sf_log_word(struct sf_context *, uintptr_t word, uint64_t need);
bool sf_has_word(uintptr_t word, uint64_t need); /* whether the table has these bytes of a word, or needs not */
bool sf_has_stored(struct sf_context *, uintptr_t at, size_t length); /* some of these bytes are in the first run's log */
size_t sf_logged_from(struct sf_context *, uintptr_t at); /* from here on so many bytes are in the log */

/* ranges.c: with --recover, a copy that is under way. */
struct sf_copying {
  uintptr_t to, from;
  size_t length;
};
extern __thread struct sf_copying sf_copying __attribute__((tls_model(SF_TLS_MODEL)));

/* restore.c */
struct sf_put sf_put_back(struct sf_context *);
uint64_t sf_change_over(struct sf_context *, size_t ranges,
                        uint64_t *sum); /* N is kept, O put back: bits that are wrong, and the sum of O */
const char *sf_roll_back(struct sf_context *);

/* compare.c: V 1, 4, 5. */
void sf_compare_words(struct sf_context *);
void sf_compare_ranges(struct sf_context *);

/* messages.c: R7, V 2, V 3, and what is counted on afterwards. */
void sf_finish_outputs(struct sf_context *);
void sf_check_outputs(struct sf_context *);
void sf_commit_outputs(struct sf_context *);
void sf_check_message(struct sf_context *, const struct sf_message *);

/* replay.c: whether this may be the name of a call. */
bool sf_is_of_program(const char *name);

extern int *__errno_location(void);

/* Eight bits to eight bytes. */
static inline uint64_t spread(uint64_t bits) {
  /* Copy the bits into every byte, keep bit k in byte k, then make each byte that is not zero all ones. */
  uint64_t v = (bits * 0x0101010101010101ull) & 0x8040201008040201ull;
  v = ((v + 0x7f7f7f7f7f7f7f7full) | v) & 0x8080808080808080ull;
  return (v >> 7) * 0xff;
}

/* After it: also of a direction flag, or a count, that changes on the way, nothing else tells outside what is logged. */
static inline void ends_at(const void *is, const void *should, size_t length) {
  if (SF_CHECKED(PLACES) && unlikely(is != should))
    sf_differ(sf_wrong_place, (uint64_t)should, length, (uint64_t)is);
}

/* sf_copy, where a call would cost: ranges. */
static inline void *copy_bytes(void *to, const void *from, size_t length) {
  /* rep movsb: fast for long copies on every x86-64 since 2013 (ERMS), but it takes 10 ns to begin. Forwards, so that what overlaps
     may be moved down. */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  for (size_t i = 0; i < length; i++) /* assembly they do not see */
    ((volatile uint8_t *)to)[i] = ((const volatile uint8_t *)from)[i];
  return (uint8_t *)to + length;
#else
  typedef uint64_t word __attribute__((aligned(1), may_alias));
  uint8_t *d = to, *end = d + length;
  const uint8_t *s = from;
  size_t all = length;
  if (length > SHORT)
    __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(length)::"memory");
  for (; length >= 8; d += 8, s += 8, length -= 8)
    *(word *)d = *(const word *)s;
  for (; length; d++, s++, length--)
    *d = *s;
  sf_opaque(d);
  ends_at(d, end, all);
  return d;
#endif
}

/* The table: tags by word address, open addressing; a mask beside each. */

static inline size_t slots(void) { return (__sf_tls.index_mask >> 3) + 1; }

static inline size_t home(uintptr_t word) { return (word & __sf_tls.index_mask) >> 3; }

/* The table is never full, so a search ends at a free slot before it has gone through all; with a mask that has lost a bit
   it goes round among a few, which may be taken. */
static inline size_t next(size_t slot, size_t *gone) {
  if (unlikely(++*gone >= slots()))
    sf_differ("memory is written, and the table of the log has lost its size:", (uint64_t)__sf_tls.table, 0, __sf_tls.index_mask);
  return (slot + 1) & (__sf_tls.index_mask >> 3);
}

static inline volatile uint64_t *tag_at(size_t slot) { return __sf_tls.table + slot; }

static inline uintptr_t word_of(const struct sf_entry *e) { return e->where & 0xffffffffffffffull; }
static inline uint64_t bytes_of(const struct sf_entry *e) { return e->where >> 56 ^ BYTES; }

/* By both records of the bounds: one that has changed lets no store pass for one to a frame. */
static inline bool in_frames(const struct sf_context *c, uintptr_t at) {
  return at - __sf_tls.stack_low < __sf_tls.stack_length && (!SF_CHECKED(FRAMES) || at - c->stack_low < c->run_bytes);
}

/* Inline: a result that was handed over in a register would be believed without the second look. */
static inline __attribute__((always_inline)) bool exempt(const struct sf_context *c, uintptr_t word) {
  if (in_frames(c, word))
    return true;
  if (unlikely(c->ignored_count > SF_IGNORED))
    sf_differ("the number of ranges that are ignored has changed", word, SF_IGNORED, c->ignored_count);
  for (size_t i = 0; unlikely(i < c->ignored_count); i++)
    if (word - c->ignored[i].at < c->ignored[i].length)
      return true;
  return false;
}

/* Where a register that held it may have changed. */
static inline struct sf_context *own_again(void) {
  sf_reload();
  return __sf_own;
}

/* Looked at twice: such a store is in no log. */
static inline __attribute__((always_inline)) bool surely_exempt(const struct sf_context *c, uintptr_t word) {
  if (likely(!exempt(c, word)))
    return false;
  sf_opaque(word);
  if (unlikely(!exempt(own_again(), word)))
    sf_differ("a word is in the run's frames at one look and not at the next", word, 0, 0);
  return true;
}

/* Order does not matter to a sum, a changed, lost or doubled entry does. */
static inline uint64_t weigh(uint64_t where, uint64_t old) { return where ^ old; } /* as store.S does */

/* The run's key: with another, tags of earlier handlers pass for its own, and stores are not logged. Either run's, as the phase
   itself may be what was struck. */
static inline bool key_holds(struct sf_context *c) {
  uint64_t key = (c->epoch << SF_EPOCH_SHIFT) + __sf_tls.delta;
  return (__sf_tls.delta & ~((uint64_t)1 << SF_EPOCH_SHIFT)) == 0 && __sf_tls.epoch_key == key && __sf_tls.key_whole == (key | BYTES);
}

/* Both logs have the same words, and the key is the run's. */
static inline bool ready_for_store(struct sf_context *c) { return __sf_recover.shadow_even(c) && key_holds(c); }

static inline struct sf_range *range_at(struct sf_context *c, size_t index) { return (struct sf_range *)c->ranges.base + index; }
static inline size_t range_count(struct sf_context *c) { return c->ranges.used / sizeof(struct sf_range); }
/* What this run has reached: the first one makes them, the second goes over them. */
static inline size_t ranges_so_far(struct sf_context *c) { return __sf_tls.phase == SF_E1 ? range_count(c) : c->range_cursor; }

static inline uint32_t mxcsr_get(void) {
  uint32_t v;
  __asm__ volatile("stmxcsr %0" : "=m"(v));
  return v;
}

/* Bits from 16 on are reserved, and a crash (Intel SDM vol. 1, 10.2.3). */
static inline void mxcsr_set(uint32_t v) {
  v &= 0xffff;
  __asm__ volatile("ldmxcsr %0" ::"m"(v));
}

#endif
