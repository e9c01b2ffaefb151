/*
 * The algorithm: phases I, E1, R, E2, V of one handler on one thread.
 *
 *     begin  I   open the gate, empty the log                        __sf_begin
 *            E1  the handler runs; first writes save the old word    store.S, __sf_log
 *     mid    R   new values to N, old values back from O             __sf_mid
 *            E2  the handler runs again; words must be known         log_second, __sf_log
 *     end    V   same words, same bytes, memory equals N,            __sf_end
 *                inputs and outputs still have their checksums
 *
 * Rules of the paper (Figure 3), and where they are: R1, R5 reads are checked by the memory (mode ecc); R2 log_first;
 * R3, R8 and R4, R9 libc.c (locks); R6 log_second; R7 sf_output_append, sf_output_done.
 *
 * Three value sets are kept apart: O (entries, arena), N (news, arena), live (memory after E2). Putting back reads
 * only O.
 *
 * Invariants
 *  1. A byte of memory is written by hardened code only after its old value is in O (E1), or it was found in O (E2).
 *  2. O is never written after the first run.
 *  3. Nothing that V has not passed leaves: deferred effects are carried out by __sf_end alone.
 *
 * Not covered: see docs/reference/limits-cc.md, "Hardening".
 */
#include "state.h"

#include <stdatomic.h>

#define EPOCH_MASK ((((uint64_t)1 << SF_EPOCH_BITS) - 1) << SF_EPOCH_SHIFT)
#define BYTES 0xffull
#define PAGE 4096ull
/* Bytes that are copied by words, or whose checksum is taken, in less time than other ways need to begin. */
#define SHORT 64

SF_API __thread struct sf_tls __sf_tls;
__thread struct sf_context *__sf_own;
struct sf_context *_Atomic sf_contexts;
/* Objects of another version of the contract do not link. */
SF_API const int __sf_abi_6 = SF_ABI;

/* store.S. Named here, so that a link that takes this file takes that one: what inline assembly calls is not seen by a
   link-time optimiser. */
extern void __sf_slow8(void), __sf_slow_part(void), __sf_check(void);
SF_API void (*const __sf_stores[])(void) = {__sf_slow8, __sf_slow_part, __sf_check};

/* --protect: a program has one, and its link the same. Modules with hardened code say theirs in this section (pass/plugin.cpp). */
#define LEVEL_SEI 1
#define LEVEL_FULL 2
extern const uint64_t __start_sf_levels[] __attribute__((weak, visibility("hidden")));
extern const uint64_t __stop_sf_levels[] __attribute__((weak, visibility("hidden")));

__attribute__((constructor(103))) static void one_level(void) {
  const uint64_t *from = __start_sf_levels, *to = __stop_sf_levels;
  sf_opaque(from);
  sf_opaque(to);
  for (; from != to; from++)
    if (*from != (SF_BEYOND ? LEVEL_FULL : LEVEL_SEI))
      sf_stop(SF_BEYOND ? "a program needs one --protect for all its files, found a file with sei and a link with full"
                        : "a program needs one --protect for all its files, found a file with full and a link with sei",
              "give all files and the link the same --protect");
  if (!SF_BEYOND && (sf_recovers() || sf_async()))
    sf_stop("--recover and --validate=async rest on checks that --protect=sei leaves out, found them together",
            "leave --protect=sei out, or the other flag");
}

/* Eight bits to eight bytes. */
static inline uint64_t spread(uint64_t bits) {
  /* Copy the bits into every byte, keep bit k in byte k, then make each byte that is not zero all ones. */
  uint64_t v = (bits * 0x0101010101010101ull) & 0x8040201008040201ull;
  v = ((v + 0x7f7f7f7f7f7f7f7full) | v) & 0x8080808080808080ull;
  return (v >> 7) * 0xff;
}

uint64_t sf_mix(uint64_t a, uint64_t b) {
  a ^= b + 0x9e3779b97f4a7c15ull; /* 2^64 / golden ratio */
  a *= 0xff51afd7ed558ccdull;     /* odd: no bit is lost */
  return a ^ a >> 32;
}

/* Memory. */

void *sf_map(size_t bytes) {
  /* A page on either side stays inaccessible: a wild index stops here instead of in the program's data. */
  bytes = (bytes + PAGE - 1) & ~(PAGE - 1);
  long at = sf_syscall(9 /* mmap */, 0, (long)(bytes + 2 * PAGE), 0, 0x22 /* PRIVATE|ANONYMOUS */, -1, 0);
  if (at < 0 && at > -4096)
    sf_stop("memory for the log is needed, the kernel gives none", "raise the memory limit of the process");
  if (sf_syscall(10 /* mprotect */, at + (long)PAGE, (long)bytes, 3, 0, 0, 0) != 0)
    sf_stop("memory for the log is needed, the kernel gives none", "raise the memory limit of the process");
  return (void *)(at + (long)PAGE);
}

void sf_unmap(void *base, size_t bytes) {
  bytes = (bytes + PAGE - 1) & ~(PAGE - 1);
  sf_syscall(11 /* munmap */, (long)base - (long)PAGE, (long)(bytes + 2 * PAGE), 0, 0, 0, 0);
}

const char sf_wrong_place[] = "a copy, a fill or an entry has gone elsewhere than it should";
const char sf_logs_differ[] = "the two logs of old values differ"; /* of recover.c and store.S */
const char sf_entry_elsewhere[] = "an entry of the log has gone to another place of it";

/* After it: also of a direction flag, or a count, that changes on the way, nothing else tells outside what is logged. */
static inline void ends_at(const void *is, const void *should, size_t length) {
  if (SF_CHECKED(PLACES) && unlikely(is != should))
    sf_differ(sf_wrong_place, (uint64_t)should, length, (uint64_t)is);
}

void *sf_copy(void *to, const void *from, size_t length) {
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

size_t sf_length(const char *s) {
  size_t n = 0;
  while (s[n])
    n++;
  return n;
}

void sf_enlarge(struct sf_buffer *b, size_t bytes) {
  size_t size = b->size ? b->size : PAGE;
  while (size < b->used + bytes)
    size *= 2;
  uint8_t *base = sf_map(size), *old = b->base;
  size_t old_size = b->size;
  if (old)
    sf_copy(base, old, b->used);
  b->base = base;
  b->size = size;
  if (unlikely(__sf_own && __sf_own->twin))
    sf_twin_places(__sf_own);
  if (old) /* last: until here a retry finds it where it was */
    sf_unmap(old, old_size);
}

/* After a handler: empty, and small again when it has been much larger than needed for a while. */
static void reset(struct sf_buffer *b) {
  b->idle = b->used < b->size / 4 ? b->idle + 1 : 0;
  b->used = 0;
  if (unlikely(b->size > 16 * PAGE && b->idle > SF_IDLE)) {
    sf_unmap(b->base, b->size);
    *b = (struct sf_buffer){0};
    if (unlikely(__sf_own->twin != NULL))
      sf_twin_places(__sf_own);
  }
}

/* The table: tags by word address, open addressing; a mask beside each. */

static size_t slots(void) { return (__sf_tls.index_mask >> 3) + 1; }

static inline size_t home(uintptr_t word) { return (word & __sf_tls.index_mask) >> 3; }

/* The table is never full, so a search ends at a free slot before it has gone through all; with a mask that has lost a bit
   it goes round among a few, which may be taken. */
static inline size_t next(size_t slot, size_t *gone) {
  if (unlikely(++*gone >= slots()))
    sf_differ("memory is written, and the table of the log has lost its size:", (uint64_t)__sf_tls.table, 0, __sf_tls.index_mask);
  return (slot + 1) & (__sf_tls.index_mask >> 3);
}

static inline volatile uint64_t *tag_at(size_t slot) { return __sf_tls.table + slot; }

static void table_new(struct sf_context *c, size_t count) {
  __sf_tls.table = sf_map(count * 9);
  __sf_tls.index_mask = (count - 1) << 3;
  c->masks = (uint8_t *)(__sf_tls.table + count);
}

/* Twice the slots. The old table stays mapped until the handler ends: inline code may hold a slot of it. */
static SF_COLD void grow_table(struct sf_context *c) {
  size_t count = slots();
  uint64_t *old = __sf_tls.table;
  if (c->tables_old_count == 16)
    sf_stop("a handler writes more than 2^24 words", "split the handler");
  table_new(c, 2 * count);
  for (size_t i = 0; i < count; i++) {
    uint64_t tag = old[i];
    if ((tag & EPOCH_MASK) != __sf_tls.epoch_key)
      continue;
    size_t s = home(tag >> SF_WORD_SHIFT & ~7ull), gone = 0;
    while ((*tag_at(s) & EPOCH_MASK) == __sf_tls.epoch_key)
      s = next(s, &gone);
    *tag_at(s) = tag;
  }
  if (unlikely(c->twin != NULL))
    sf_twin_places(c);
  /* Last, as in sf_enlarge. */
  c->tables_old[c->tables_old_count] = old;
  c->tables_old_bytes[c->tables_old_count++] = count * 9;
}

static SF_COLD void grow_entries(struct sf_context *c) {
  size_t capacity = 2 * c->capacity, count = (size_t)(__sf_tls.cursor - c->entries);
  struct sf_entry *entries = sf_map(capacity * sizeof *entries);
  uint64_t *news = sf_map(capacity * sizeof *news), *old_news = c->news;
  struct sf_entry *old = c->entries;
  size_t old_capacity = c->capacity;
  sf_copy(entries, old, count * sizeof *entries);
  c->entries = entries;
  __sf_tls.cursor = entries + count;
  if (__sf_tls.limit)
    __sf_tls.limit = entries + capacity;
  c->news = news;
  c->capacity = capacity;
  if (unlikely(c->twin != NULL))
    sf_twin_places(c);
  /* Last, as in sf_enlarge. */
  sf_unmap(old, old_capacity * sizeof *old);
  sf_unmap(old_news, old_capacity * sizeof *old_news);
}

static SF_COLD void drop_old_tables(struct sf_context *c) {
  for (size_t i = 0; i < c->tables_old_count; i++)
    sf_unmap(c->tables_old[i], c->tables_old_bytes[i]);
  c->tables_old_count = 0;
}

/* Small again after large handlers; called outside handlers. */
static SF_COLD void shrink(struct sf_context *c) {
  sf_unmap(__sf_tls.table, slots() * 9);
  table_new(c, SF_SLOTS);
  sf_unmap(c->entries, c->capacity * sizeof *c->entries);
  sf_unmap(c->news, c->capacity * sizeof *c->news);
  c->entries = sf_map(SF_WORDS * sizeof *c->entries);
  c->news = sf_map(SF_WORDS * sizeof *c->news);
  c->capacity = SF_WORDS;
  if (unlikely(c->twin != NULL))
    sf_twin_places(c);
}

/* Threads. */

/* One of a thread that has ended, or a new one. Contexts are never unmapped: others look at their counters. */
static struct sf_context *context_get(void) {
  for (struct sf_context *c = atomic_load(&sf_contexts); c; c = c->next) {
    uint64_t dead = 0;
    if (atomic_compare_exchange_strong(&c->alive, &dead, 1))
      return c;
  }
  struct sf_context *c = sf_map(sizeof *c);
  atomic_store(&c->alive, 1);
  c->next = atomic_load(&sf_contexts);
  while (!atomic_compare_exchange_weak(&sf_contexts, &c->next, c))
    ;
  return c;
}

static SF_COLD struct sf_context *context_new(void) {
  struct sf_context *c = context_get();
  c->entries = sf_map(SF_WORDS * sizeof *c->entries);
  c->news = sf_map(SF_WORDS * sizeof *c->news);
  c->capacity = SF_WORDS;
  table_new(c, SF_SLOTS);
  c->epoch = SF_EPOCH_FIRST;
  sf_gates_close(c, c->event);
  c->state = sf_state();
  sf_stack_bounds(&c->stack_low, &c->stack_high);
  c->stack_bytes = c->stack_high - c->stack_low;
  sf_carry_thread(c);
  if (sf_recovers()) {
    sf_recover_thread();
    sf_twin_thread(c);
  }
  __sf_own = c;
  sf_thread_ends(c);
  return c;
}

struct sf_context *sf_context(void) {
  struct sf_context *c = __sf_own;
  return likely(c != NULL) ? c : context_new();
}

struct sf_context *sf_inside(const char *what) {
  if (unlikely(__sf_tls.phase == SF_OUTSIDE))
    sf_stop(what, "call it from a handler only");
  return __sf_own;
}

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

/* A word that needs no log is in the table so that inline code finds it; but the table grows with the log, and must never
   be full, so a run's frames have a quarter of it at most. What has no tag goes the long way each time. */
static inline bool may_show_exempt(struct sf_context *c) {
  if (unlikely(c->exempted >= slots() / 4))
    return false;
  c->exempted++;
  return true;
}

/* Of the entry that has made a slot's tag this one. */
static inline uint64_t where_of(uint64_t tag, uint64_t before) {
  uint64_t had = (tag ^ before) <= BYTES ? before : 0;
  return tag >> SF_WORD_SHIFT | (((tag ^ had) & BYTES) ^ BYTES) << 56;
}

/* R2 (Figure 4b): O_v is the entry, O_c the tag. */
static void log_first(struct sf_context *c, uintptr_t word, uint64_t need) {
  uint64_t key = word << SF_WORD_SHIFT | __sf_tls.epoch_key;
  size_t s = home(word), gone = 0;
  uint64_t tag, have;
  for (;; s = next(s, &gone)) {
    tag = *tag_at(s);
    have = tag ^ key;
    if (have <= BYTES)
      break;
    have = 0;
    if ((tag & EPOCH_MASK) != __sf_tls.epoch_key)
      break;
  }
  uint64_t add = need & ~have;
  if (add == 0)
    return; /* not in its home slot, so the inline code could not know */
  if (unlikely(surely_exempt(c, word))) {
    if (have || may_show_exempt(c))
      *tag_at(s) = key | have | need;
    return;
  }
  if (unlikely(__sf_tls.cursor == c->entries + c->capacity)) {
    grow_entries(c);
    grow_table(c);
    log_first(c, word, need);
    return;
  }
  struct sf_entry *e = __sf_tls.cursor;
  e->where = word | (add ^ BYTES) << 56;
  e->old = sf_live(word);
  sf_reload();
  if (unlikely(*tag_at(s) != tag))
    sf_differ("a word was logged twice in the first run", word, tag, *tag_at(s));
  *tag_at(s) = key | have | add;
  uint64_t kept = *(volatile uint64_t *)&e->old;
  if (unlikely((sf_live(word) ^ kept) & spread(add)))
    sf_differ("the log did not keep an old value", word, kept, sf_live(word));
  /* From the tag, not from what went into the entry: of two that differ, the log would put back one, and know the other. */
  uint64_t shown = *tag_at(s);
  sf_opaque(tag); /* what it had before, once more */
  if (SF_CHECKED(PLACES) && unlikely(e != *(struct sf_entry *volatile *)&__sf_tls.cursor)) {
    c = own_again();
    sf_differ((uintptr_t)e - (uintptr_t)c->entries < c->capacity * sizeof *e ? sf_entry_elsewhere : sf_wrong_place, word,
              (uint64_t)__sf_tls.cursor, (uint64_t)e);
  }
  /* Before this log has it, so of two that differ none does. */
  if (unlikely(own_again()->twin != NULL))
    sf_twin_word(__sf_own, where_of(*tag_at(s), tag), e); /* put together once more */
  __sf_tls.sum += weigh(where_of(shown, tag), kept);
  __sf_tls.partial |= add ^ BYTES;
  __sf_tls.cursor++;
}

/* R6: U is the tag of the second run; the first run's bytes move to mask_first. */
static void log_second(struct sf_context *c, uintptr_t word, uint64_t need) {
  uint64_t key = word << SF_WORD_SHIFT | __sf_tls.epoch_key;
  uint64_t key_first = key - ((uint64_t)1 << SF_EPOCH_SHIFT);
  if (unlikely((key & ((uint64_t)1 << SF_EPOCH_SHIFT)) == 0))
    sf_differ("a store of the first run was looked up as one of the second", word, __sf_tls.phase, need);
  for (size_t s = home(word), gone = 0;; s = next(s, &gone)) {
    uint64_t tag = *tag_at(s), bytes = tag ^ key;
    if (likely((tag ^ key_first) <= BYTES)) {
      bytes = tag & BYTES;
      if (likely((need & ~bytes) == 0) || surely_exempt(c, word)) {
        own_again()->masks[s] = (uint8_t)bytes;
        *tag_at(s) = key | need;
        return;
      }
      break;
    }
    if (bytes <= BYTES) {
      if ((need & ~bytes & ~(uint64_t)c->masks[s]) == 0 || surely_exempt(c, word)) {
        *tag_at(s) = tag | need;
        return;
      }
      break;
    }
    if ((tag & EPOCH_MASK) != __sf_tls.epoch_key && (tag & EPOCH_MASK) != (key_first & EPOCH_MASK)) {
      if (!surely_exempt(c, word))
        break;
      if (may_show_exempt(c)) {
        own_again()->masks[s] = BYTES;
        *tag_at(s) = key | need;
      }
      return;
    }
  }
  sf_differ("memory is written in the second run only", word, 0, need);
}

/* --validate=async: a word that is read, with the value that it has before this handler writes there. It is an entry of
   which no byte is meant; its tag has none either, so a store makes an entry of its own. In the second run the word must
   be in the table, by a load or a store of the first. */
static void log_read(struct sf_context *c, uintptr_t word) {
  if (word - __sf_tls.stack_low < __sf_tls.stack_length)
    return;
  bool first = __sf_tls.phase == SF_E1;
  uint64_t epoch = __sf_tls.epoch_key, epoch_first = epoch - __sf_tls.delta;
  uint64_t key = word << SF_WORD_SHIFT | epoch, key_first = word << SF_WORD_SHIFT | epoch_first;
  size_t s = home(word), gone = 0;
  for (;; s = next(s, &gone)) {
    uint64_t tag = *tag_at(s);
    if ((tag ^ key) <= BYTES || (tag ^ key_first) <= BYTES)
      return;
    if ((tag & EPOCH_MASK) != epoch && (tag & EPOCH_MASK) != epoch_first)
      break;
  }
  if (unlikely(!first))
    sf_differ("memory is read in the second run only", word, 0, 0);
  if (unlikely(__sf_tls.cursor == c->entries + c->capacity)) {
    grow_entries(c);
    grow_table(c);
    log_read(c, word);
    return;
  }
  struct sf_entry *e = __sf_tls.cursor;
  e->where = word | BYTES << 56;
  e->old = sf_live(word);
  *tag_at(s) = key;
  __sf_tls.sum += weigh(e->where, e->old);
  __sf_tls.partial |= BYTES;
  __sf_tls.cursor++;
}

/* Called by __sf_load (store.S). Low bits: not aligned, so it may reach into the next word. */
void sf_load_slow(uintptr_t at) {
  log_read(__sf_own, at & ~7ull);
  if (unlikely(at & 7))
    log_read(__sf_own, (at & ~7ull) + 8);
}

static inline void log_word(struct sf_context *c, uintptr_t word, uint64_t need) {
  if (__sf_tls.phase == SF_E1)
    log_first(c, word, need);
  else
    log_second(c, word, need);
}

static const char not_logged[] = "a store was not logged";
static const char range_not_logged[] = "a range was not logged";
static const char not_put_back[] = "memory could not be put back";
static const char not_yet_logged[] = "what is written next is not in the log";
static const char astray[] = "another address was written than was logged";
/* With --recover: a copy that is under way. */
static __thread struct {
  uintptr_t to, from;
  size_t length;
} copying;

static const char wrongly_checked[] = "the check of a store went wrong";

/* The run's key: with another, tags of earlier handlers pass for its own, and stores are not logged. Either run's, as the phase
   itself may be what was struck. */
static inline bool key_holds(struct sf_context *c) {
  uint64_t key = (c->epoch << SF_EPOCH_SHIFT) + __sf_tls.delta;
  return (__sf_tls.delta & ~((uint64_t)1 << SF_EPOCH_SHIFT)) == 0 && __sf_tls.epoch_key == key &&
         __sf_tls.key_whole == (key | BYTES);
}

/* Both logs have the same words, and the key is the run's. */
static inline bool ready_for_store(struct sf_context *c) { return sf_twin_even(c) && key_holds(c); }

/* Some object was built without --recover: its stores do not look at the log before they happen. */
static bool unguarded(void) {
  const void *some = __sf_unguarded;
  sf_opaque(some);
  return some != NULL;
}

/* Whether the table has these bytes of a word, or needs not. */
static bool has_word(uintptr_t word, uint64_t need) {
  uint64_t expected = word << SF_WORD_SHIFT | __sf_tls.epoch_key | BYTES;
  uint64_t previous = __sf_tls.phase == SF_E2 ? (__sf_tls.epoch_key - ((uint64_t)1 << SF_EPOCH_SHIFT)) : __sf_tls.epoch_key;
  for (size_t s = home(word), gone = 0;; s = next(s, &gone)) {
    uint64_t tag = *tag_at(s);
    if (((tag ^ expected) & (~BYTES | need)) == 0)
      return true;
    if ((tag & EPOCH_MASK) != __sf_tls.epoch_key && (tag & EPOCH_MASK) != previous)
      break;
  }
  return exempt(__sf_own, word);
}

static bool has_store(uintptr_t at, uint64_t need) {
  uintptr_t word = at & ~7ull;
  return has_word(word, need & BYTES) && (need <= BYTES || has_word(word + 8, need >> 8));
}

/* Bytes from bit 8 on are those of the next word: a store that is not aligned. */
void sf_store_slow(uintptr_t at, uint64_t need, const volatile struct sf_store *caller) {
  struct sf_context *c = __sf_own;
  uintptr_t word = at & ~7ull;
  log_word(c, word, need & BYTES);
  if (unlikely(need > BYTES))
    log_word(c, word + 8, need >> 8);
  /* What is not there before the store can still be repaired. */
  if (unlikely(c->twin != NULL) && unlikely(!ready_for_store(c) || !has_store(caller->at, caller->need)))
    sf_differ(not_yet_logged, caller->at, at, need);
}

/* store.S: an entry has gone to another place than the next of its log. In a table of entries it has struck what is not counted, or the log
   lacks its sum. */
_Noreturn SF_COLD void sf_entry_astray(uintptr_t word, uintptr_t is) {
  struct sf_context *c = own_again();
  bool entry = is - (uintptr_t)c->entries < c->capacity * sizeof *c->entries || (c->twin && sf_twin_has_entry(c, is));
  sf_differ(entry ? sf_entry_elsewhere : sf_wrong_place, word, (uint64_t)__sf_tls.cursor, is);
}

/* After the store, when the home slot does not hold the word: it must be further on (Figure 4b, line 7). */
void sf_store_check(uintptr_t at, uint64_t need, const volatile struct sf_store *caller) {
  if (need == BYTES) /* of eight bytes, which inline code does not shift */
    need <<= at & 7;
  if (likely(has_store(at, need)))
    return;
  uint64_t again = caller->need;
  if (again == BYTES)
    again <<= caller->at & 7;
  sf_differ(has_store(caller->at, again) ? wrongly_checked : not_logged, caller->at & ~7ull, at, again);
}

/* With --recover, before the store, when the home slot does not hold the word. */
void sf_store_ready(uintptr_t at, uint64_t need) {
  if (need == BYTES)
    need <<= at & 7;
  if (unlikely(!key_holds(__sf_own) || !has_store(at, need)))
    sf_differ(not_yet_logged, at, 0, need);
}

/* Behind it: what was written is not what was logged, or looks so. */
void sf_store_astray(uintptr_t at, uint64_t need) {
  if (need == BYTES)
    need <<= at & 7;
  sf_differ(astray, at & ~7ull, 0, need);
}

/* Ranges. */

/* Below this, words cost less than a range (record, arena, comparison). */
#define RANGE_BYTES 64

static void log_words(struct sf_context *c, uintptr_t at, size_t length) {
  uintptr_t end = at + length;
  for (uintptr_t word = at & ~7ull; word < end; word += 8) {
    uint64_t need = BYTES;
    if (word < at)
      need &= BYTES << (at - word);
    if (word + 8 > end)
      need &= BYTES >> (word + 8 - end);
    log_word(c, word, need);
  }
}

static inline struct sf_range *range_at(struct sf_context *c, size_t index) { return (struct sf_range *)c->ranges.base + index; }
static inline size_t range_count(struct sf_context *c) { return c->ranges.used / sizeof(struct sf_range); }
/* What this run has reached: the first one makes them, the second goes over them. */
static inline size_t ranges_so_far(struct sf_context *c) { return __sf_tls.phase == SF_E1 ? range_count(c) : c->range_cursor; }

/* Of a range the first bytes that are either all to be logged or all not. What was a range before a part of it was ignored, is one in
   both runs. */
struct piece {
  size_t length;
  bool exempt;
};

static struct piece first_piece(struct sf_context *c, uintptr_t at, size_t length) {
  size_t now = ranges_so_far(c);
  struct piece p = {length, in_frames(c, at)};
  for (size_t i = 0; unlikely(i < c->ignored_count); i++) {
    const struct sf_ignored *s = &c->ignored[i];
    bool inside = at - s->at < s->length;
    size_t end = inside ? s->at + s->length - at : s->at - at;
    if (s->after > now)
      continue;
    p.exempt |= inside;
    if (end < p.length)
      p.length = end;
  }
  return p;
}

SF_API void __sf_log(const void *bytes, size_t length) {
  struct sf_context *c = __sf_own;
  uintptr_t at = sf_home(bytes);
  if (length == 0)
    return;
  if (unlikely(sf_state()))
    sf_state_touch((const void *)at, length);
  if (length < RANGE_BYTES) {
    log_words(c, at, length);
    return;
  }
  struct piece p = first_piece(c, at, length);
  if (unlikely(p.length < length)) {
    __sf_log(bytes, p.length);
    __sf_log((const char *)bytes + p.length, length - p.length);
    return;
  }
  if (p.exempt)
    return;
  if (__sf_tls.phase == SF_E1) {
    __sf_tls.grows = NULL; /* a word logged before a range has its old bytes from before it */
    size_t offset = c->arena.used;
    uint8_t *old = sf_grow(&c->arena, 2 * length);
    sf_copy(old, bytes, length);
    sf_reload();
    if (unlikely(!sf_equal(old, bytes, length)))
      sf_differ("the log did not keep the old value of a range", at, 0, length);
    /* Only now is it in the log: what ends before this leaves a memory to which nothing has been stored, and is put back
       without it. */
    struct sf_range made = {.at = at, .length = length, .old = offset, .after = (size_t)(__sf_tls.cursor - c->entries)};
    if (unlikely(c->twin != NULL)) {
      made.crc = sf_twin_range_crc(&made, old);
      sf_twin_range(c, &made);
    }
    *(struct sf_range *)sf_grow(&c->ranges, sizeof made) = made;
    return;
  }
  struct sf_range *r = range_at(c, c->range_cursor);
  if (unlikely(c->range_cursor >= range_count(c)))
    sf_differ("a range is written in the second run only", at, 0, length);
  if (unlikely(r->at != at || r->length != length))
    sf_differ("the runs write different ranges", at, r->length, length);
  c->range_cursor++;
}

/* Whether the log has what __sf_log has just been called for. */
static bool has_bytes(struct sf_context *c, uintptr_t at, size_t length) {
  if (length < RANGE_BYTES) {
    uintptr_t end = at + length;
    for (uintptr_t word = at & ~7ull; word < end; word += 8) {
      uint64_t need = BYTES;
      if (word < at)
        need &= BYTES << (at - word);
      if (word + 8 > end)
        need &= BYTES >> (word + 8 - end);
      if (unlikely(!has_word(word, need)))
        return false;
    }
    return true;
  }
  struct piece p = first_piece(c, at, length);
  if (unlikely(p.length < length || p.exempt))
    return true;
  size_t index = ranges_so_far(c) - 1;
  if (unlikely(c->twin != NULL) && unlikely(!sf_twin_has_range(c, index, at, length)))
    return false;
  return likely(index < range_count(c)) && range_at(c, index)->at == at && range_at(c, index)->length == length;
}

/* Before the store: what is not in the log then can still be repaired. */
SF_API void __sf_ready(const void *bytes, size_t length) {
  struct sf_context *c = own_again();
  if (length != 0 && c->twin != NULL && unlikely(!ready_for_store(c) || !has_bytes(c, sf_home(bytes), length)))
    sf_differ(not_yet_logged, sf_home(bytes), 0, length);
}

static inline void ready(const void *to, const void *from, size_t length) {
  if (likely(own_again()->twin == NULL))
    return;
  __sf_ready(to, length);
  copying.to = (uintptr_t)to;
  copying.from = (uintptr_t)from;
  copying.length = length;
}

SF_API void __sf_logged(const void *bytes, size_t length) {
  if (length != 0 && unlikely(!has_bytes(__sf_own, sf_home(bytes), length)))
    sf_differ(range_not_logged, sf_home(bytes), 0, length);
}

/* Ranges of loops (pass/ranges.cpp). A loop opens a piece at its first store, and another one where that ends or where a store is not the
   next one; it closes each where it leaves it. What is read of a piece when it is opened may lie beyond what will be written, and may
   be another thread's: of a piece is in the log what lies before the place where it was closed. The second run opens the same
   pieces, may not write beyond them, and must end where the first has ended.

   That O is what was there needs no second look: all of it is written by either run, and a store that had rested on a wrong one differs
   from the first run's. */
#define PIECE_BYTES 64 /* of a loop's first piece; each that goes on behind the last is four times as long, up to a page */
static const char other_piece[] = "the runs write different ranges in a loop";
static const char piece_astray[] = "a loop has written elsewhere than its range is";

static inline void range_close(struct sf_context *c, uint64_t next, uint64_t id) {
  if (unlikely(id > range_count(c)))
    sf_differ(piece_astray, next, range_count(c), id);
  struct sf_range *r = range_at(c, id - 1);
  size_t length = next - r->at, room = r->room;
  c->open--;
  if (__sf_tls.phase == SF_E2) {
    if (unlikely(length != r->length))
      sf_differ(other_piece, r->at, r->length, length);
    return;
  }
  if (unlikely(length - 1 >= room))
    sf_differ(piece_astray, r->at, room, length);
  r->length = length;
  r->room = 0;
  if (likely(c->arena.used == r->old + 2 * room))
    c->arena.used = r->old + 2 * length;
}

/* Of what no log is needed for, or kept in another way. */
static struct sf_piece no_piece(struct sf_context *c, uintptr_t at, size_t size) {
  size_t length = size;
  if (surely_exempt(c, at)) {
    length = __sf_tls.stack_low + __sf_tls.stack_length - at; /* of two records, the smaller one */
    if (c->stack_low + c->run_bytes - at < length)
      length = c->stack_low + c->run_bytes - at;
    if (in_frames(c, at) && length >= size)
      return (struct sf_piece){at + length, 0};
    length = size;
  }
  __sf_log((const void *)at, size);
  return (struct sf_piece){at + length, 0};
}

/* Some bytes are ignored from here on: told by the number of ranges, as a range's pieces are. */
static inline bool some_ignored(const struct sf_context *c, size_t ranges) {
  for (size_t i = 0; unlikely(i < c->ignored_count); i++)
    if (c->ignored[i].after <= ranges)
      return true;
  return false;
}

SF_API struct sf_piece __sf_range_next(uint64_t at, uint64_t next, uint64_t id, uint64_t size) {
  struct sf_context *c = __sf_own;
  size_t before = 0;
  if (id) {
    range_close(c, next, id);
    if (next == at)
      before = range_at(c, id - 1)->length;
  }
  bool first = __sf_tls.phase == SF_E1;
  size_t index = first ? range_count(c) : c->range_cursor;
  if (unlikely(c->twin != NULL || sf_state() || sf_async() || in_frames(c, at)) || some_ignored(c, index))
    return no_piece(c, at, size);
  if (!first) {
    if (unlikely(index >= range_count(c)))
      sf_differ("a range is written in the second run only", at, 0, size);
    const struct sf_range *r = range_at(c, index);
    if (unlikely(r->at != at || r->length < size))
      sf_differ(other_piece, at, r->at, r->length);
    c->range_cursor++;
    c->open++;
    return (struct sf_piece){at + r->length, index + 1};
  }
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  size_t room = size; /* they object to what is read beyond */
  (void)before;
#else
  size_t room = before < PIECE_BYTES ? PIECE_BYTES : 4 * before, page = PAGE - (at & (PAGE - 1));
  if (room > page)
    room = page; /* the next one may not be there */
  if (room < size)
    room = size;
#endif
  __sf_tls.grows = NULL;
  struct sf_range made = {.at = at, .length = room, .old = c->arena.used, .after = (size_t)(__sf_tls.cursor - c->entries), .room = (uint32_t)room};
  sf_copy(sf_grow(&c->arena, 2 * room), (const void *)at, room);
  *(struct sf_range *)sf_grow(&c->ranges, sizeof made) = made;
  c->open++;
  return (struct sf_piece){at + room, index + 1};
}

SF_API void __sf_range_end(uint64_t next, uint64_t id) { range_close(__sf_own, next, id); }

static inline void check_closed(const struct sf_context *c) {
  if (unlikely(c->open != 0))
    sf_differ("a loop was left and its range was not closed", c->ranges.used, 0, c->open);
}

SF_API void *__sf_memcpy(void *to, const void *from, size_t length) {
  __sf_log(to, length);
  ready(to, from, length);
  ends_at(sf_copy(to, from, length), (uint8_t *)to + length, length);
  copying.length = 0;
  __sf_logged(to, length);
  return to;
}

SF_API void *__sf_memmove(void *to, const void *from, size_t length) {
  __sf_log(to, length);
  ready(to, from, length);
  if ((uintptr_t)to - (uintptr_t)from >= length) {
    ends_at(sf_copy(to, from, length), (uint8_t *)to + length, length);
  } else {
    uint8_t *d = (uint8_t *)to + length - 1;
    const void *s = (const uint8_t *)from + length - 1;
    size_t n = length;
    __asm__ volatile("std\n\trep movsb\n\tcld" : "+D"(d), "+S"(s), "+c"(n)::"memory");
    ends_at(d, (uint8_t *)to - 1, length);
  }
  copying.length = 0;
  __sf_logged(to, length);
  return to;
}

SF_API void *__sf_memset(void *to, int byte, size_t length) {
  __sf_log(to, length);
  ready(to, to, length);
  void *d = to;
  size_t n = length;
  __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(byte) : "memory");
  ends_at(d, (uint8_t *)to + length, length);
  copying.length = 0;
  __sf_logged(to, length);
  return to;
}

/* Values that must not be read or computed twice. */

extern int *__errno_location(void);

struct sf_record *sf_record(struct sf_context *c, const char *name, uint64_t arguments, size_t length) {
  struct sf_record *r = sf_grow(&c->queue, sizeof *r + ((length + 7) & ~7ull));
  *r = (struct sf_record){.name = name, .arguments = arguments, .length = (uint32_t)length, .run = c->runs};
  return r;
}

/* The first run's next record, which must be of this name; its arguments are the caller's to compare. */
static struct sf_record *replay_next(struct sf_context *c, const char *name, uint64_t arguments) {
  if (unlikely(c->queue_cursor >= c->queue.used))
    sf_differ_name("only the second run calls", name, 0, arguments);
  struct sf_record *r = (struct sf_record *)(c->queue.base + c->queue_cursor);
  /* Names are compared as text: the same function may be named by several modules. */
  if (unlikely(r->name != name && (sf_length(r->name) != sf_length(name) || !sf_equal(r->name, name, sf_length(name)))))
    sf_differ_name("the runs call different functions: second", name, 0, 0);
  c->queue_cursor += sizeof *r + ((r->length + 7) & ~7ull);
  return r;
}

struct sf_record *sf_replay(struct sf_context *c, const char *name, uint64_t arguments) {
  struct sf_record *r = replay_next(c, name, arguments);
  if (unlikely(r->arguments != arguments))
    sf_differ_name("the runs call with different arguments", name, r->arguments, arguments);
  return r;
}

/* Where names of calls are. */
static inline bool is_of_program(const char *name) {
  extern const char __executable_start[] __attribute__((visibility("hidden"))), _end[] __attribute__((visibility("hidden")));
  return (uintptr_t)name >= (uintptr_t)__executable_start && (uintptr_t)name < (uintptr_t)_end;
}

struct sf_record *sf_kept(struct sf_context *c, const char *name, uint64_t arguments) {
  if (likely(c->kept_cursor >= c->kept.used))
    return NULL;
  struct sf_record *r = (struct sf_record *)(c->kept.base + c->kept_cursor);
  if (!is_of_program(r->name))
    r->name = name; /* a fault was there */
  if (sf_length(r->name) != sf_length(name) || !sf_equal(r->name, name, sf_length(name)) || r->arguments != arguments)
    /* What the failed run has done outside cannot be undone, and this run wants something else. */
    sf_stop("a retry calls something else than the run that failed", "none: the fault had an effect outside; restart the program");
  size_t bytes = sizeof *r + ((r->length + 7) & ~7ull);
  c->kept_cursor += bytes;
  struct sf_record *copy = sf_grow(&c->queue, bytes);
  sf_copy(copy, r, bytes);
  copy->run = c->runs;
  return copy;
}

/* The result, and as data what errno is then. */
#define ONCE_BYTES sizeof(uint64_t)

SF_API int __sf_once(const char *name, uint64_t arguments, uint64_t *result) {
  struct sf_context *c = __sf_own;
  struct sf_record *r = __sf_tls.phase == SF_E1 ? sf_kept(c, name, arguments) : sf_replay(c, name, arguments);
  if (!r) {
    sf_record(c, name, arguments, ONCE_BYTES)->once = 1;
    return 0;
  }
  *result = r->result;
  *__errno_location() = (int)*(uint64_t *)sf_data(r);
  return 1;
}

SF_API void __sf_once_done(uint64_t result) {
  struct sf_context *c = __sf_own;
  /* The record that __sf_once has just made: a call of class once cannot contain another. */
  struct sf_record *r = (struct sf_record *)(c->queue.base + c->queue.used - ONCE_BYTES) - 1;
  r->result = result;
  *(uint64_t *)sf_data(r) = (uint64_t)*__errno_location();
}

static inline uint64_t look(const void *at, size_t size) {
  return size == 8   ? *(const volatile uint64_t *)at
         : size == 4 ? *(const volatile uint32_t *)at
         : size == 2 ? *(const volatile uint16_t *)at
                     : *(const volatile uint8_t *)at;
}

/* What is read once: where, and, in the top byte, how much of it. */
#define ASKED_SIZE 56
static inline uint64_t asked(const void *at, size_t size) { return (uint64_t)at ^ (uint64_t)size << ASKED_SIZE; }

/* Place and width are told apart: in one number they would be neither. */
static SF_COLD _Noreturn void asked_differs(const char *place, const char *width, uint64_t was, uint64_t is) {
  uint64_t at = (1ull << ASKED_SIZE) - 1;
  if ((was ^ is) & at)
    sf_differ(place, is & at, was & at, is & at);
  sf_differ(width, is & at, was >> ASKED_SIZE, is >> ASKED_SIZE);
}

/* Behind the reads, by the registers that they had: what came from elsewhere would be both runs' value. */
static inline void read_as_asked(const struct sf_record *r, const void *at, size_t size) {
  sf_opaque(at); /* or what was computed from them before would be compared */
  sf_opaque(size);
  if (!SF_CHECKED(PLACES))
    return;
  uint64_t was = *(volatile const uint64_t *)&r->arguments;
  if (unlikely(was != asked(at, size)))
    asked_differs("a word was read elsewhere than asked", "more or fewer bytes were read than asked", was, asked(at, size));
}

static struct sf_record *replay_read(struct sf_context *c, const char *name, uint64_t asked) {
  struct sf_record *r = replay_next(c, name, asked);
  if (unlikely(r->arguments != asked))
    asked_differs("the runs read different places", "the runs read words of different width", r->arguments, asked);
  return r;
}

/* Each run has a value that was read for it: one that goes wrong on its way is another than the other run's. */
SF_API uint64_t __sf_load_once(const void *at, size_t size) {
  struct sf_context *c = __sf_own;
  if (__sf_tls.phase == SF_E2)
    return replay_read(c, "a volatile load", asked(at, size))->result;
  struct sf_record *r = sf_record(c, "a volatile load", asked(at, size), 0);
  for (;;) {
    uint64_t first = look(at, size), second = SF_CHECKED(PLACES) ? look(at, size) : first, difference = first ^ second;
    r->result = second;
    sf_opaque(difference); /* or the compiler would take one for the other */
    read_as_asked(r, at, size);
    if (likely(difference == 0))
      return first;
  }
}

/* Some of these bytes are in the first run's log. */
static bool has_stored(struct sf_context *c, uintptr_t at, size_t length) {
  const struct sf_range *r = (struct sf_range *)c->ranges.base, *end = (struct sf_range *)(c->ranges.base + c->ranges.used);
  for (; r < end; r++)
    if (at < r->at + r->length && r->at < at + length)
      return true;
  for (uintptr_t word = at & ~7ull; word < at + length; word += 8) {
    uint64_t key = word << SF_WORD_SHIFT | __sf_tls.epoch_key, need = 0;
    for (int i = 0; i < 8; i++)
      need |= word + (uintptr_t)i >= at && word + (uintptr_t)i < at + length ? 1ull << i : 0;
    size_t gone = 0;
    for (size_t s = home(word);; s = next(s, &gone)) {
      uint64_t tag = *tag_at(s);
      if ((tag ^ key) <= BYTES && (tag & need))
        return true;
      if ((tag ^ key) <= BYTES || (tag & EPOCH_MASK) != __sf_tls.epoch_key)
        break;
    }
  }
  return false;
}

/* An atomic operation on what this handler has already stored to: 1, and it is a store like others, logged and done in both runs. Else
   it is done once (`atomics-once`), since the first run's effect is not put back. */
SF_API int __sf_atomic_logged(const void *at, size_t size) {
  struct sf_context *c = __sf_own;
  if (__sf_tls.phase == SF_E2)
    return (int)sf_replay(c, "an atomic operation", (uint64_t)at)->result;
  struct sf_record *r = sf_record(c, "an atomic operation", (uint64_t)at, 0);
  return (int)(r->result = has_stored(c, (uintptr_t)at, size));
}

/* With `atomics-once`: what the first run's operations leave stays, so the second run is given what the first has read before them, and
   so is a retry. What the run has stored plainly is its own, and read from memory. */
SF_API uint64_t __sf_load_mixed(const void *at, size_t size) {
  struct sf_context *c = __sf_own;
  static const char name[] = "a plain load of what an atomic operation changes";
  enum { INVERSE, OWN, WORDS };
  struct sf_record *r = __sf_tls.phase == SF_E1 ? sf_kept(c, name, asked(at, size)) : replay_read(c, name, asked(at, size));
  if (r) {
    uint64_t *data = (uint64_t *)sf_data(r);
    if (unlikely(data[INVERSE] != ~r->result))
      sf_differ("what a run has read has changed in the list of what it read", (uint64_t)at, data[INVERSE], ~r->result);
    return data[OWN] ? look(at, size) : r->result;
  }
  r = sf_record(c, name, asked(at, size), WORDS * sizeof(uint64_t));
  r->once = 1;
  uint64_t *data = (uint64_t *)sf_data(r), first, difference;
  data[OWN] = has_stored(c, (uintptr_t)at, size);
  do { /* as __sf_load_once */
    first = look(at, size);
    r->result = SF_CHECKED(PLACES) ? look(at, size) : first;
    difference = first ^ r->result;
    sf_opaque(difference);
  } while (unlikely(difference != 0));
  read_as_asked(r, at, size);
  data[INVERSE] = ~r->result;
  return first;
}

SF_API void __sf_defer(const char *name, void *function, size_t count, const uint64_t *arguments) {
  struct sf_context *c = __sf_own;
  if (__sf_tls.phase == SF_E1) {
    struct sf_deferred *d = sf_grow(&c->deferred, sizeof *d);
    *d = (struct sf_deferred){.name = name, .function = function, .count = count};
    for (size_t i = 0; i < count; i++)
      d->arguments[i] = arguments[i];
    return;
  }
  struct sf_deferred *d = (struct sf_deferred *)c->deferred.base + c->deferred_cursor;
  if (unlikely(c->deferred_cursor >= c->deferred.used / sizeof *d))
    sf_differ_name("only the second run calls", name, 0, 0);
  if (unlikely(d->function != function || d->count != count))
    sf_differ_name("the runs call different functions: second", name, (uint64_t)d->function, (uint64_t)function);
  for (size_t i = 0; i < count; i++)
    if (unlikely(d->arguments[i] != arguments[i]))
      sf_differ_name("the runs call with different arguments", name, d->arguments[i], arguments[i]);
  c->deferred_cursor++;
}

/* Messages. */

SF_API int sf_input(const void *message, size_t length, uint32_t crc) {
  struct sf_context *c = sf_context();
  if (__sf_tls.phase != SF_OUTSIDE)
    sf_stop("sf_input belongs before a handler, found inside one", "call it before the handler; inside: sf_input_edge");
  if (sf_crc32c(0, message, length) != crc)
    return 0;
  if (c->message_count == SF_MESSAGES)
    sf_stop("a handler takes at most 8 messages", "split the handler");
  c->messages[c->message_count++] = (struct sf_message){message, length, crc, SF_CHECKED};
  return 1;
}

static void input_edge(const void *message, size_t length, enum sf_message_kind kind) {
  struct sf_context *c = sf_context();
  if (unlikely(sf_async()) && __sf_tls.phase != SF_OUTSIDE)
    __sf_reads(message, length);
  uint32_t crc = sf_crc32c(0, message, length);
  /* One that is wrong from the beginning stays so, whatever is repaired. */
  for (uint32_t again; unlikely(c->twin != NULL) && (again = sf_crc32c(0, message, length)) != crc;)
    crc = again;
  if (__sf_tls.phase == SF_E2) {
    struct sf_message *m = &c->messages[c->message_cursor];
    if (c->message_cursor >= c->message_count || (uintptr_t)m->bytes != sf_home(message) || m->length != length || m->crc != crc)
      sf_differ("the runs see different inputs", (uint64_t)message, m->crc, crc);
    c->message_cursor++;
    return;
  }
  if (c->message_count == SF_MESSAGES)
    sf_stop("a handler takes at most 8 messages", "split the handler");
  struct sf_message *m = &c->messages[c->message_count++];
  *m = (struct sf_message){message, length, crc, kind};
  /* After the checksum, so that this is one of what was received. */
  while (unlikely(c->carry != NULL) && sf_carry_input(c, message, length, kind))
    m->crc = sf_crc32c(0, message, length);
}

/* Before the input of a handler of a stream, which begins after it. */
SF_API void __sf_stream(void) { sf_context()->of_stream = true; }
SF_API void sf_input_edge(const void *message, size_t length) { input_edge(message, length, SF_EDGE); }
SF_API void __sf_edge_string(const char *message) { input_edge(message, sf_length(message), SF_EDGE); }
SF_API void __sf_edge_line(const char *message) { input_edge(message, sf_length(message), SF_EDGE_LINE); }
SF_API void __sf_edge_crlf(const char *message) { input_edge(message, sf_length(message), SF_EDGE_CRLF); }

SF_API void sf_output_append(const void *bytes, size_t length) {
  struct sf_context *c = sf_inside("sf_output_append belongs inside a handler");
  if (unlikely(sf_async()))
    __sf_reads(bytes, length);
  uint32_t crc = sf_crc32c(c->crc_running, bytes, length);
  c->crc_running = crc;
  if (__sf_tls.phase == SF_E1) {
    struct sf_part *p = sf_grow(&c->parts, sizeof *p);
    *p = (struct sf_part){.bytes = bytes, .length = length, .crc_first = crc};
    return;
  }
  struct sf_part *p = (struct sf_part *)c->parts.base + c->part_cursor;
  if (unlikely(c->part_cursor >= c->parts.used / sizeof *p || (uintptr_t)p->bytes != sf_home(bytes) || p->length != length))
    sf_differ("the runs send different bytes", (uint64_t)bytes, 0, length);
  p->crc = crc;
  c->part_cursor++;
}

SF_API void sf_output_done(void) {
  struct sf_context *c = sf_inside("sf_output_done belongs inside a handler");
  size_t count = __sf_tls.phase == SF_E1 ? c->parts.used / sizeof(struct sf_part) : c->part_cursor;
  if (count == 0)
    sf_stop("a message ends that has no bytes", "call sf_output_append before sf_output_done");
  struct sf_part *p = (struct sf_part *)c->parts.base + count - 1;
  if (__sf_tls.phase == SF_E1)
    p->last = 1;
  else if (unlikely(!p->last))
    sf_differ("the runs end messages at different places", (uint64_t)p->bytes, 0, 1);
  c->crc_running = 0;
}

/* An output that a policy names: a message of its own. Its checksum is the second run's alone (R7): that both runs make the
   same bytes is seen by their stores. */
SF_API void __sf_output(const void *bytes, uint64_t length, uint64_t skip) {
  struct sf_context *c = sf_inside("an output that a policy names belongs inside a handler");
  uint32_t kind = skip ? SF_PART_UNKNOWN : SF_PART_NAMED;
  if (unlikely(sf_async()) && !skip)
    __sf_reads(bytes, length);
  if (__sf_tls.phase == SF_E1) {
    struct sf_part *p = sf_grow(&c->parts, sizeof *p);
    *p = (struct sf_part){.bytes = bytes, .length = length, .last = !skip, .kind = kind};
    return;
  }
  struct sf_part *p = (struct sf_part *)c->parts.base + c->part_cursor;
  if (unlikely(c->part_cursor >= c->parts.used / sizeof *p || (uintptr_t)p->bytes != sf_home(bytes) || p->length != length || p->kind != kind))
    sf_differ("the runs send different bytes", (uint64_t)bytes, 0, length);
  if (!skip) {
    p->crc = sf_crc32c(0, bytes, length);
    if (likely(!sf_async()))
      p->crc_first = p->crc;
  }
  c->part_cursor++;
}

/* A program that never asks for checksums, since its source stays untouched, does not gather them: they are computed by
   the second run and checked in V all the same. */
#define CRCS_UNASKED 64

static void keep_crc(struct sf_context *c, uint32_t crc) {
  if (!c->crcs_asked && c->crcs.used == CRCS_UNASKED * 4)
    c->crcs.used = c->crc_cursor = 0;
  *(uint32_t *)sf_grow(&c->crcs, 4) = crc;
}

SF_API uint32_t sf_crc_pop(void) {
  struct sf_context *c = sf_context();
  if (unlikely(sf_async()))
    sf_async_hold(); /* what leaves with it is held, if anything is */
  c->crcs_asked = true;
  if (c->crc_cursor >= c->crcs.used / 4)
    sf_stop("sf_crc_pop needs a message that a handler has sent, there is none",
            "end messages with sf_output_done, and take one checksum for each");
  uint32_t crc = ((uint32_t *)c->crcs.base)[c->crc_cursor++];
  if (c->crc_cursor == c->crcs.used / 4)
    c->crc_cursor = c->crcs.used = 0;
  return crc;
}

SF_API size_t sf_crc_count(void) {
  struct sf_context *c = sf_context();
  c->crcs_asked = true;
  return c->crcs.used / 4 - c->crc_cursor;
}

/* From here on in either run: a range that was logged before is one in both. */
void sf_ignore_words(struct sf_context *c, uintptr_t at, size_t length) {
  if (c->ignored_count == SF_IGNORED)
    sf_stop("a handler may have at most 8 ignored ranges and exceptions at once", "ignore fewer, say `ignore` in a policy, or split the handler");
  c->ignored[c->ignored_count++] = (struct sf_ignored){at, length, ranges_so_far(c)};
  __sf_tls.limit = NULL; /* store.S does not know about these */
  __sf_tls.twin = __sf_tls.twin_again = NULL;
}

SF_API void sf_ignore(const void *bytes, size_t length) {
  struct sf_context *c = sf_inside("sf_ignore belongs inside a handler");
  uintptr_t low = ((uintptr_t)bytes + 7) & ~7ull, high = ((uintptr_t)bytes + length) & ~7ull;
  if (unlikely(sf_state()) && (sf_is_dup(sf_home(bytes)) || sf_is_crc(low)))
    sf_stop("sf_ignore is for memory without a copy or a checksum", "take the object out of what is protected");
  if (__sf_tls.phase == SF_E2 || low >= high)
    return; /* whole words only: the bytes at the edges stay logged */
  sf_ignore_words(c, low, high - low);
}

SF_API int sf_run(void) { return (int)__sf_tls.phase; }
SF_API uint64_t sf_committed(void) { return sf_context()->committed; }

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

/* Phases. */

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

extern _Noreturn void sf_resume(const struct sf_handler *);

static struct sf_put put_back(struct sf_context *c);

/* Memory as it was when the handler began. If the log cannot be trusted or did not help: why. */
static const char *roll_back(struct sf_context *c) {
  if (__sf_tls.phase == SF_E1)
    c->count = (size_t)(__sf_tls.cursor - c->entries);
  if (unlikely(c->twin != NULL)) {
    const char *why = sf_twin_mend(c);
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
  if (put_back(c).wrong)
    return "memory does not show the old values that were put back";
  /* Before the second run copies are as they were, and may be all that is right. */
  if (unlikely(sf_state()) && __sf_tls.phase == SF_E2)
    sf_state_put_back(c);
  return NULL;
}

/* From here on so many bytes are in the log. */
static size_t logged_from(struct sf_context *c, uintptr_t at) {
  for (size_t i = 0; i < range_count(c); i++)
    if (at - range_at(c, i)->at < range_at(c, i)->length)
      return range_at(c, i)->at + range_at(c, i)->length - at;
  for (size_t i = 0; i < c->count; i++)
    if (word_of(&c->entries[i]) == (at & ~7ull) && bytes_of(&c->entries[i]) >> (at & 7) & 1)
      return (size_t)__builtin_ctzll(~(bytes_of(&c->entries[i]) >> (at & 7)));
  return 0;
}

/* Whether the log has the old value of all these bytes, and so memory can be put back although the check of a store says that it
   cannot. */
static bool is_logged(struct sf_context *c, uintptr_t low, uintptr_t high) {
  size_t n = 0;
  for (uintptr_t at = low; at < high; at += n) {
    n = in_frames(c, at & ~7ull) ? 1 : logged_from(c, at); /* what is ignored is not put back */
    if (n == 0)
      return false;
  }
  return true;
}

/* The bounds of the run's frames: with others, stores that no log knows pass for those to frames. */
static inline bool frames_hold(const struct sf_context *c) {
  uint64_t other = (__sf_tls.stack_low ^ c->stack_low) | (__sf_tls.stack_length ^ c->run_bytes);
  return !SF_CHECKED(FRAMES) || likely((other | (c->stack_high - c->stack_low - c->stack_bytes)) == 0);
}

static void check_frames(struct sf_context *c) {
  if (unlikely(!frames_hold(c)))
    sf_differ("the bounds of the run's frames have changed", __sf_tls.stack_low, c->run_bytes, __sf_tls.stack_length);
}

/* Whether a crash at this address ended a copy that had gone on behind its end, by a count that changed on the way: it reads and writes
   from both beginnings on, so within either range it had not. 0: an address that is none, which no counting leads to. */
static bool copied_beyond(uintptr_t at) {
  return copying.length != 0 && at != 0 && at - copying.to >= copying.length && at - copying.from >= copying.length;
}

/* Some differences say that memory may have changed where no old value is known. Then a handler that begins again would find
   what a fault has left. */
static const char *beyond_log(struct sf_context *c, const char *what, uintptr_t at, uint64_t second) {
  if (__sf_tls.phase == SF_E1 && unguarded() && !key_holds(c))
    return "stores of this run may have been taken for logged ones";
  if (what == sf_wrong_place || (what == sf_crash && copied_beyond(at)))
    return "bytes were copied to a place that is not known";
  if (what == range_not_logged && !is_logged(c, at, at + second))
    return "bytes were written whose old values are not known";
  for (unsigned k = 0; (what == not_logged || what == astray) && k < 16; k++)
    if (second >> k & 1 && !is_logged(c, at + k, at + k + 1))
      return "a word was written whose old value is not known";
  return NULL;
}

/* Everything else of the run is forgotten, but for what it had from outside; then the handler begins again. */
static _Noreturn void begin_again(struct sf_context *c) {
  c->kept.used = 0;
  c->kept_cursor = 0;
  for (size_t i = 0; i < c->queue.used && i + sizeof(struct sf_record) <= c->queue.size;) {
    struct sf_record *r = (struct sf_record *)(c->queue.base + i);
    if (r->run != c->runs)
      break; /* none of this run's: the count has changed, or the run ended before it was written */
    size_t bytes = sizeof *r + ((r->length + 7) & ~7ull);
    if (r->once)
      sf_copy(sf_grow(&c->kept, bytes), r, bytes);
    else if (is_of_program(r->name) && sf_length(r->name) == 6 && sf_equal(r->name, "malloc", 6))
      sf_free((void *)r->result);
    i += bytes;
  }
  c->queue.used = c->deferred.used = c->parts.used = c->ranges.used = c->arena.used = 0;
  c->message_count = c->messages_outside;
  c->ignored_count = copying.length = 0;
  sf_locks_between_runs(c);
  sf_locks_forget(c);
  c->epoch += 2;
  if (unlikely(c->twin != NULL)) {
    /* A tag may be what was wrong. */
    c->epoch = SF_EPOCH_FIRST;
    void *d = __sf_tls.table;
    size_t n = slots() * 9;
    __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(0) : "memory");
  }
  sf_gates_close(c, c->event - 1);
  mxcsr_set(c->mxcsr);
  *__errno_location() = c->errno_begin;
  __sf_tls.phase = SF_OUTSIDE;
  c->again = 1;
  if (unlikely(c->split_state & SF_SPLIT_HALF))
    sf_split_again(c);
  c->split_state = 0;
  sf_resume(c->handler);
}

void sf_try_again(const char *what, const char *name, uint64_t at, uint64_t first, uint64_t second) {
  struct sf_context *c = __sf_own;
  if (!sf_recovers() || !c || __sf_tls.phase == SF_OUTSIDE || c->retry == SF_RETRIES || c->rolling)
    return;
  if (sf_elsewhere())
    sf_elsewhere_back(c);
  uint64_t seen[4] = {(uint64_t)what, at, first, second};
  if (c->retry && sf_equal(seen, c->last, sizeof seen))
    return; /* the same difference again: not a fault */
  sf_copy(c->last, seen, sizeof seen);
  c->rolling = 1;
  sf_twin_places_mend(c);
  sf_locks_mend(c);
  if (c->ignored_count > SF_IGNORED)
    c->ignored_count = 0;
  if (c->messages_outside > SF_MESSAGES)
    c->messages_outside = 0;
  if (c->message_count > SF_MESSAGES)
    c->message_count = c->messages_outside;
  /* Looked at before anything is put back again, in a log that is sound. */
  if (__sf_tls.phase == SF_E1)
    c->count = (size_t)(__sf_tls.cursor - c->entries);
  const char *why = sf_twin_mend(c);
  if (!why)
    why = beyond_log(c, what, at, second);
  if (!why)
    why = roll_back(c);
  if (why) {
    sf_tell_not_repaired(why);
    return;
  }
  if (unlikely(sf_state()) && !sf_state_repair())
    return;
  for (size_t i = 0; i < c->message_count && c->carry; i++)
    sf_carry_restore(c, c->messages[i].bytes, c->messages[i].length, c->messages[i].crc);
  sf_locks_resolve(c);
  sf_tell(what, name, at, first, second, "retry");
  c->retry++;
  sf_recover_move(c);
  if (sf_elsewhere())
    sf_elsewhere_move(c);
  c->rolling = 0;
  begin_again(c);
}

/* In the way of another handler (waits.c). Nothing of this one has happened yet, so it begins later. */
void sf_give_way(struct sf_context *c, const struct sf_waited *w, uint64_t ns) {
  if (unlikely(__sf_tls.phase != SF_E1 || roll_back(c)))
    sf_differ("memory could not be put back by a handler that gives way", (uint64_t)c->entries, __sf_tls.phase, c->count);
  sf_locks_between_runs(c);
  sf_locks_release(c);
  c->gave_way++;
  c->taking = NULL;
  /* Meanwhile it is in no handler: nobody's barrier waits for it. */
  atomic_store_explicit(&c->counter, c->counter + 1, memory_order_release);
  if (w->of && c->locks.used == 0) {
    sf_wait_end(w);
  } else {
    uint64_t t[2] = {ns / 1000000000, ns % 1000000000};
    sf_syscall(35 /* nanosleep */, (long)t, 0, 0, 0, 0, 0);
  }
  atomic_fetch_add(&c->counter, 1);
  begin_again(c);
}

/* Control-flow gates (Figure 4a). The phases I, E1, R, E2, V end one after the other, and each says so in its turn in one of two
   words, by what no other phase of any event says there. Before it does, both words must say that those before have ended;
   afterwards the other word is looked at once more, for who has jumped to where this one is set. The end of V stays until the
   next event: what a jump can set at the end cannot be what tells that all went well (crates/model). */
enum { END_I = 1, END_E1, END_R, END_E2, END_V };

/* One number for each phase of each event, spread over the word by an odd factor (2^64 / golden ratio), so that none is another's and
   a bit that changes makes none of them. */
static inline uint64_t gate(uint64_t event, uint64_t phase) { return (8 * event + phase) * 0x9e3779b97f4a7c15ull; }

static inline bool passed(const struct sf_context *c, uint64_t event, uint64_t odd, uint64_t even) {
  const volatile uint64_t *leave = &c->gate_leave, *enter = &c->gate_enter;
  return likely((*enter ^ gate(event, odd)) == 0) && likely((*leave ^ gate(event, even)) == 0);
}

static SF_COLD _Noreturn void gate_differs(const struct sf_context *c, const struct sf_handler *h, uint64_t phase) {
  static const char *const what[] = {
      [END_I] = "control flow: a handler begins before the last one has ended",
      [END_E1] = "control flow: the first run ends that did not begin",
      [END_R] = "control flow: memory was put back that no first run had left",
      [END_E2] = "control flow: the second run ends that did not begin",
      [END_V] = "control flow: validation was not entered at its beginning",
  };
  if (phase == END_I)
    __sf_tls.phase = SF_OUTSIDE; /* what the event before has left was not validated: nothing to begin again from */
  sf_differ_name(what[phase], h->name, c->gate_enter, c->gate_leave);
}

/* With --recover: a word of the gates in which a bit has changed is none that a jump has left. Of two numbers that differ in one bit
   there are 2^58 phases between (powers of two times the factor's inverse). */
static bool near_gate(const volatile uint64_t *word, uint64_t should) { return __builtin_popcountll(*word ^ should) <= 1; }

static uint64_t gate_before(uint64_t event, uint64_t phase) { return phase > END_I ? gate(event, phase - 1) : gate(event - 1, END_E2); }
static uint64_t gate_last(uint64_t event, uint64_t phase) { return phase > END_E1 ? gate(event, phase - 2) : gate(event - 1, 6 - phase); }

/* Looked at again, by the event that is kept beside the second log: the next one begins, or the same once more. */
static SF_COLD void end_phase_again(struct sf_context *c, const struct sf_handler *h, uint64_t phase) {
  volatile uint64_t *own = phase & 1 ? &c->gate_enter : &c->gate_leave, *other = phase & 1 ? &c->gate_leave : &c->gate_enter;
  for (uint64_t later = phase == END_I; c->twin != NULL; later--) {
    uint64_t event = sf_twin_event(c) + later;
    if (near_gate(own, gate_last(event, phase)) && near_gate(other, gate_before(event, phase))) {
      *other = gate_before(event, phase);
      c->event = event;
      *own = gate(event, phase);
      sf_tell_mended(c, "a gate of its phases had changed");
      return;
    }
    if (later == 0)
      break;
  }
  gate_differs(c, h, phase);
}

static inline __attribute__((always_inline)) void end_phase(struct sf_context *c, const struct sf_handler *h, uint64_t phase) {
  volatile uint64_t *own = phase & 1 ? &c->gate_enter : &c->gate_leave, *other = phase & 1 ? &c->gate_leave : &c->gate_enter;
  uint64_t event = c->event;
  uint64_t before = gate_before(event, phase);
  if (unlikely(*own != gate_last(event, phase) || *other != before)) {
    end_phase_again(c, h, phase);
    return;
  }
  *own = gate(event, phase);
  sf_reload();
  if (unlikely(*other != before))
    gate_differs(c, h, phase);
}

/* As V leaves them. */
void sf_gates_close(struct sf_context *c, uint64_t event) {
  c->gate_enter = gate(event, END_V);
  c->gate_leave = gate(event, END_E2);
}

/* Out of line: numbers that the caller has kept in registers may be what went wrong. */
static SF_COLD void passed_again(struct sf_context *c) {
  uint64_t event = c->twin ? sf_twin_event(c) : c->event;
  if (!c->twin || !near_gate(&c->gate_enter, gate(event, END_V)) || !near_gate(&c->gate_leave, gate(event, END_E2)))
    gate_differs(c, c->handler, END_V);
  sf_gates_close(c, event);
  c->event = event;
  sf_tell_mended(c, "a gate of its phases had changed");
}

/* After V. */
static inline __attribute__((always_inline)) void see_passed(struct sf_context *c) {
  if (unlikely(!passed(c, c->event, END_V, END_E2)))
    passed_again(c);
}

/* The bits that a program sets, without those that the processor raises by itself. */
#define MXCSR_CONTROL 0xffc0u

/* A new event, seen by all before anything of the state is read: a locked instruction, which alone on the machine is not
   needed. Acquire: what a new thread's context says of the next was written before it was in the list. */
static inline void count_event(struct sf_context *c) {
  c->event++;
  c->gave_way = 0;
  c->messages_outside = c->message_count;
  if (atomic_load_explicit(&sf_contexts, memory_order_acquire)->next)
    atomic_fetch_add(&c->counter, 1);
  else
    atomic_store_explicit(&c->counter, c->counter + 1, memory_order_relaxed);
}

/* The first run, from here on. */
static inline void open_run(struct sf_context *c, const struct sf_handler *h) {
  c->again = 0;
  c->runs++;
  c->handler = h;
  c->count = c->exempted = c->open = c->trace.used = 0;
  __sf_tls.partial = c->state; /* with copies of the state every word goes the long way */
  c->crc_running = 0;
  __sf_tls.cursor = c->entries;
  __sf_tls.limit = c->entries + c->capacity;
  __sf_tls.grows = NULL;
  __sf_tls.sum = 0;
  __sf_tls.delta = 0;
  c->message_cursor = c->message_count;
  if (unlikely(c->locks.used | c->state | (uintptr_t)c->twin)) {
    if (c->state)
      sf_state_begin(c);
    sf_locks_begin(c);
    if (c->twin)
      sf_twin_begin(c);
  }
  c->mxcsr = mxcsr_get();
  c->errno_begin = *__errno_location();
  if (unlikely(c->epoch + 2 >= (uint64_t)1 << SF_EPOCH_BITS)) {
    /* Epochs are used up: forget all. 16 KiB once in 250 handlers. */
    c->epoch = SF_EPOCH_FIRST;
    void *d = __sf_tls.table;
    size_t n = slots() * 8;
    __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(0) : "memory");
  }
  __sf_tls.epoch_key = c->epoch << SF_EPOCH_SHIFT;
  __sf_tls.key_whole = __sf_tls.epoch_key | BYTES;
  __sf_tls.phase = SF_E1;
  end_phase(c, h, END_I);
  if (unlikely(c->twin != NULL))
    sf_twin_opened(c);
}

/* Called by __sf_begin (store.S), and again by a retry. 0: the first run comes next. */
int sf_begin(const struct sf_handler *h) {
  struct sf_context *c = sf_context();
  /* The driver's stack pointer, above the return address to it and its frame pointer: the runs' frames begin there. */
  const uintptr_t *own = __builtin_frame_address(0);
  uintptr_t frame = (uintptr_t)own + 16;
  /* Its frame pointer is above: a stack pointer that has changed before would return to its caller, and frames of this would pass
     for the run's. */
  if (unlikely(*own < frame))
    gate_differs(c, h, END_I);
  if (unlikely(frame - c->stack_low >= c->stack_high - c->stack_low))
    sf_stop("a handler runs on a stack that is not its thread's", "call handlers from ordinary threads, not from coroutines or signal stacks");
  if (unlikely(c->split_state != 0) && c->split == NULL && sf_recovers())
    c->split_state = 0; /* no wait has made it so */
  if (unlikely(__sf_tls.phase != SF_OUTSIDE || c->split_state != 0))
    gate_differs(c, h, END_I);
  if (unlikely(sf_elsewhere()))
    sf_elsewhere_ready(c);
  if (likely(c->again == 0))
    count_event(c);
  __sf_tls.stack_low = c->stack_low;
  __sf_tls.stack_length = frame - c->stack_low;
  uintptr_t again = (uintptr_t)__builtin_frame_address(0); /* no store is exempt by one of the two alone */
  sf_opaque(again);
  c->run_bytes = again + 16 - c->stack_low;
  if (unlikely(sf_async()))
    sf_async_begin(c, h);
  open_run(c, h);
  return 0;
}

/* A run that was left by another way than its end, by a stack pointer that changed, comes back to a caller that takes it for done. What
   it did was never validated, and from then on each handler would pass for a part of it. Its caller's frames lie above the run's. */
static inline void ask_whether_left(const struct sf_handler *h, uintptr_t frame) {
  if (unlikely(frame - __sf_tls.stack_low >= __sf_tls.stack_length))
    gate_differs(__sf_own, h, END_I);
}

SF_API void __sf_nested(const struct sf_handler *h) { ask_whether_left(h, (uintptr_t)__builtin_frame_address(0) + 16); }

/* A signal may end the program in the middle of a run, from a frame below or from a stack of its own. */
__attribute__((destructor)) static void ask_at_exit(void) {
  const struct sf_context *c = __sf_own;
  uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
  if (unlikely(__sf_tls.phase != SF_OUTSIDE) && frame - c->stack_low < c->stack_bytes)
    ask_whether_left(c->handler, frame);
}

void sf_begin_half(struct sf_context *c) {
  if (unlikely(__sf_tls.phase != SF_OUTSIDE))
    gate_differs(c, c->handler, END_I);
  if (likely(c->again == 0))
    count_event(c);
  open_run(c, c->handler);
  if (unlikely(c->ignored_count)) {
    __sf_tls.limit = NULL;
    __sf_tls.twin = __sf_tls.twin_again = NULL;
  }
}

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
static inline __attribute__((always_inline)) uint64_t put_bytes(uintptr_t word, uint64_t old, uint64_t bytes) {
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
static inline void reset_words(struct sf_context *c, size_t from, size_t to, struct sf_put *put_back) {
  uint64_t wrong = 0, went = 0;
  for (size_t i = to; i-- > from;) {
    uint64_t old = c->entries[i].old, bytes = bytes_of(&c->entries[i]);
    uintptr_t word = word_of(&c->entries[i]);
    sf_opaque(bytes); /* what is used is what is compared below */
    sf_opaque(word);
    if (likely(bytes == BYTES)) {
      put_8(&word, old);
    } else {
      uint64_t put = bytes > BYTES ? 0 : put_bytes(word, old, bytes);
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
  put_back->sum += went;
  for (size_t i = to; i-- > from;) {
    const volatile struct sf_entry *e = &c->entries[i];
    uint64_t where = e->where;
    wrong |= (sf_live(where & 0xffffffffffffffull) ^ e->old) & (likely(where >> 56 == 0) ? ~0ull : spread(where >> 56 ^ BYTES));
  }
  put_back->wrong |= wrong;
}

/* Memory as it was when the handler began, from O alone. The sum is that of the log if each of its entries was put back once, and
   nothing else. */
static struct sf_put put_back(struct sf_context *c) {
  size_t to = c->count;
  struct sf_put put = {0, 0};
  for (size_t i = range_count(c); i-- > 0;) {
    struct sf_range *r = range_at(c, i);
    reset_words(c, r->after, to, &put);
    const uint8_t *end = sf_copy((void *)r->at, c->arena.base + r->old, r->length);
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

/* The inputs are handled. Before V ends: a jump from behind it to the beginning finds them so. */
static inline void take_inputs(struct sf_context *c) {
  if (unlikely(c->carry != NULL))
    for (size_t i = 0; i < c->message_count; i++)
      sf_carry_taken(c, c->messages[i].bytes, c->messages[i].length, c->messages[i].kind);
}

/* What leaves, and what is forgotten, when a handler has been validated; or, where that comes later, has run. */
static inline __attribute__((always_inline)) void commit(struct sf_context *c) {
  __sf_tls.phase = SF_OUTSIDE;
  c->epoch += 2;
  c->committed++;
  if (c->parts.used) {
    size_t count = c->parts.used / sizeof(struct sf_part);
    for (size_t i = 0; i < count; i++) {
      struct sf_part *p = (struct sf_part *)c->parts.base + i;
      if (p->last)
        keep_crc(c, p->crc);
      if (p->kind == SF_PART_UNKNOWN)
        sf_carry_unknown(c, p->length);
      else if (p->kind == SF_PART_NAMED)
        sf_carry_output(c, p->bytes, p->length, p->crc);
    }
    reset(&c->parts);
  }
  c->message_count = c->ignored_count = 0;
  see_passed(c);
  sf_commit_effects(c);
  see_passed(c); /* before other threads count on it (sf_barrier) */
  if (unlikely(c->retry)) {
    sf_recovered(c);
    sf_recover_done(c);
    c->retry = 0;
  }
  c->kept.used = c->kept_cursor = 0;
  atomic_store_explicit(&c->counter, atomic_load_explicit(&c->counter, memory_order_relaxed) + 1, memory_order_release);
  if (unlikely(c->ranges.used)) {
    reset(&c->ranges);
    reset(&c->arena);
  }
  if (c->queue.used)
    reset(&c->queue);
  if (c->deferred.used) {
    reset(&c->deferred);
    c->leaves = false;
  }
  if (unlikely(c->tables_old_count))
    drop_old_tables(c);
  if (unlikely(c->capacity > SF_WORDS))
    c->idle = c->count > SF_WORDS ? 0 : c->idle + 1;
  if (unlikely(c->idle > SF_IDLE)) {
    shrink(c);
    c->idle = 0;
  }
  c->split_state = 0;
}

static void check_message(struct sf_context *c, const struct sf_message *m);

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

/* --validate=async: in place of R. Memory stays as the first run has left it, for all that comes later; what the second
   run needs goes to the validator (async.c). */
static SF_COLD void hand_over(struct sf_context *c, uint64_t result) {
  c->result_first = result;
  c->mxcsr_first = mxcsr_get();
  uint64_t sum = 0;
  for (size_t i = 0; i < c->count; i++)
    sum += weigh(c->entries[i].where, c->entries[i].old);
  if (unlikely(sum != __sf_tls.sum))
    sf_differ("the log of old values has changed", (uint64_t)c->entries, __sf_tls.sum, sum);
  for (size_t i = 0; i < c->message_count; i++)
    check_message(c, &c->messages[i]);
  /* What leaves has the first run's checksum; the second run's is compared with it. */
  for (size_t i = 0; i < c->parts.used / sizeof(struct sf_part); i++) {
    struct sf_part *p = (struct sf_part *)c->parts.base + i;
    if (p->kind == SF_PART_NAMED)
      p->crc_first = sf_crc32c(0, p->bytes, p->length);
    p->crc = p->crc_first;
  }
  sf_async_publish(c);
  sf_async_before_effects(c);
  take_inputs(c);
  sf_gates_close(c, c->event);
  commit(c);
}

SF_API int __sf_mid(const struct sf_handler *h, uint64_t result) {
  struct sf_context *c = __sf_own;
  if (unlikely(c->handler != h || __sf_tls.phase != SF_E1))
    gate_differs(c, h, END_E1);
  end_phase(c, h, END_E1);
  check_frames(c);
  check_closed(c);
  c->result_first = result;
  size_t count = (size_t)(__sf_tls.cursor - c->entries), ranges = range_count(c);
  if (unlikely(count > c->capacity))
    sf_differ("the log has lost its end", (uint64_t)__sf_tls.cursor, c->capacity, count);
  c->count = count;
  if (unlikely(sf_async())) {
    hand_over(c, result);
    return 1;
  }
  uint64_t sum = 0, wrong = 0;
  if (likely((__sf_tls.partial | ranges) == 0)) {
    wrong = swap_words(c, &sum);
  } else {
    bool twin = c->twin != NULL;
    for (size_t i = 0; i < count; i++) {
      sum += weigh(c->entries[i].where, c->entries[i].old);
      uint64_t now = sf_live(word_of(&c->entries[i]));
      if (unlikely(twin)) {
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
    if (unlikely(c->twin != NULL)) {
      if (unlikely(!key_holds(c)))
        sf_differ("the key of the first run has changed", __sf_tls.epoch_key, c->epoch, __sf_tls.key_whole);
      if (unlikely(!sf_twin_even(c))) /* that they agree is seen where each word is put back */
        sf_differ(sf_logs_differ, (uint64_t)c->entries, count, 0);
      if (unlikely(!sf_twin_ranges_hold(c)))
        sf_differ("the log of old bytes has changed", (uint64_t)c->ranges.base, ranges, 0);
    }
    for (size_t i = 0; i < ranges; i++) {
      struct sf_range *r = range_at(c, i);
      sf_copy(c->arena.base + r->old + r->length, (void *)r->at, r->length);
    }
    struct sf_put put = unlikely(c->twin != NULL) ? sf_twin_put_back(c) : put_back(c);
    wrong |= put.wrong;
    if (SF_CHECKED(PLACES))
      sum = put.sum;
  }
  if (unlikely(sum != __sf_tls.sum))
    sf_differ("the log of old values has changed", (uint64_t)c->entries, __sf_tls.sum, sum);
  if (unlikely(wrong != 0))
    sf_differ(not_put_back, (uint64_t)c->entries, 0, wrong);
  if (unlikely(__sf_tls.partial != 0) && sf_state())
    sf_state_mid(c);
  sf_locks_between_runs(c);
  c->crc_running = c->leaving = 0;
  c->mxcsr_first = mxcsr_get();
  if (unlikely(c->mxcsr_first != c->mxcsr))
    mxcsr_set(c->mxcsr);
  *__errno_location() = c->errno_begin;
  c->range_cursor = c->queue_cursor = c->deferred_cursor = c->part_cursor = 0;
  c->trace_cursor = 0;
  __sf_tls.epoch_key = (c->epoch + 1) << SF_EPOCH_SHIFT;
  __sf_tls.key_whole = __sf_tls.epoch_key | BYTES;
  __sf_tls.limit = NULL;
  __sf_tls.twin = __sf_tls.twin_again = NULL;
  __sf_tls.delta = (uint64_t)1 << SF_EPOCH_SHIFT;
  __sf_tls.phase = SF_E2;
  end_phase(c, h, END_R);
  if (unlikely(sf_elsewhere()))
    sf_elsewhere_go(c);
  if (unlikely(c->split_state))
    sf_split_second(c);
  return 0;
}

/* Which word differs: the loop over all of them has only said that one does. */
static SF_COLD void look_closer(struct sf_context *c) {
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
static inline uint64_t compare_word(const struct sf_entry *e, const uint64_t *news, const uint8_t *table, uint64_t mask,
                                    uint64_t epoch) {
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

/* V 1, 4, 5: the second run wrote the same words, and memory is as the first run left it. */
static inline void compare_words(struct sf_context *c) {
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
    look_closer(c); /* returns if words merely lie outside their home slots */
  sf_opaque(e);
  if (unlikely(e != c->entries + c->count || news != c->news + c->count))
    sf_differ("the comparison did not reach the end of the log", (uint64_t)e, c->count, 0);
}

static void compare_ranges(struct sf_context *c) {
  size_t count = range_count(c);
  if (unlikely(c->range_cursor != count))
    sf_differ("a range is written in the first run only", range_at(c, c->range_cursor)->at, count, c->range_cursor);
  for (size_t i = 0; i < count; i++) {
    struct sf_range *r = range_at(c, i);
    if (unlikely(!sf_equal(sf_own((void *)r->at), c->arena.base + r->old + r->length, r->length)))
      sf_differ("the runs leave different bytes in a range", r->at, r->length, 0);
  }
}

/* Whether the handler has written somewhere in [low, high). */
static bool touched(struct sf_context *c, uintptr_t low, uintptr_t high) {
  for (size_t i = 0; i < c->count; i++)
    if (word_of(&c->entries[i]) + 8 > low && word_of(&c->entries[i]) < high)
      return true;
  for (size_t i = 0; i < range_count(c); i++)
    if (range_at(c, i)->at + range_at(c, i)->length > low && range_at(c, i)->at < high)
      return true;
  return false;
}

/* Whether the handler has written all of [low, high). Of a message of which it has written a part, nothing else tells whether
   the rest has changed. */
static bool written_whole(struct sf_context *c, uintptr_t low, uintptr_t high) {
  size_t n = 0;
  for (uintptr_t at = low; at < high; at += n) {
    n = logged_from(c, at);
    if (n == 0)
      return false;
  }
  return true;
}

/* R7: the checksum of an output is taken after its last write, which may come after the call that a policy names. Before the words
   are compared: what changes from here on differs from the checksum, what has changed before from the first run. Where the handler
   has not written at all, the call was after the last write. */
static void finish_outputs(struct sf_context *c) {
  struct sf_part *p = (struct sf_part *)c->parts.base, *end = p + c->parts.used / sizeof *p;
  for (; p != end; p++) {
    if (p->kind != SF_PART_NAMED ||
        (p->length > SHORT && !touched(c, (uintptr_t)p->bytes, (uintptr_t)p->bytes + p->length)))
      continue;
    uint32_t crc = sf_crc32c(0, sf_own((void *)p->bytes), p->length);
    if (unlikely(crc != p->crc) && written_whole(c, (uintptr_t)p->bytes, (uintptr_t)p->bytes + p->length))
      p->crc = p->crc_first = crc;
  }
}

/* V 2: an input still has the checksum that it came with. What the handler itself has overwritten is taken from O. */
static void check_message(struct sf_context *c, const struct sf_message *m) {
  uintptr_t low = (uintptr_t)m->bytes, high = low + m->length;
  const uint8_t *bytes = m->bytes;
  size_t mark = c->arena.used;
  if (touched(c, low, high)) {
    uint8_t *copy = sf_grow(&c->arena, m->length);
    sf_copy(copy, m->bytes, m->length);
    /* Backwards, as in put_back: the oldest value wins. Only what lies in the message is looked at: a handler may have
       filled a megabyte elsewhere. */
    size_t to = c->count, i = range_count(c);
    for (;;) {
      struct sf_range *r = i ? range_at(c, i - 1) : NULL;
      for (size_t from = r ? r->after : 0; to-- > from;) {
        const struct sf_entry *e = &c->entries[to];
        uintptr_t word = word_of(e);
        if (likely(word + 8 <= low || word >= high))
          continue;
        uint64_t meant = bytes_of(e), mask = spread(meant), v;
        if (likely(word >= low && word + 8 <= high)) {
          __builtin_memcpy(&v, copy + (word - low), 8);
          v = (v & ~mask) | (e->old & mask);
          __builtin_memcpy(copy + (word - low), &v, 8);
          continue;
        }
        for (uint64_t k = 0; k < 8; k++)
          if (meant >> k & 1 && word + k >= low && word + k < high)
            copy[word + k - low] = (uint8_t)(e->old >> 8 * k);
      }
      if (!r)
        break;
      to = r->after;
      uintptr_t begin = r->at > low ? r->at : low, end = r->at + r->length < high ? r->at + r->length : high;
      if (begin < end)
        sf_copy(copy + (begin - low), c->arena.base + r->old + (begin - r->at), end - begin);
      i--;
    }
    bytes = copy;
  }
  uint32_t crc = sf_crc32c(0, bytes, m->length);
  c->arena.used = mark;
  if (unlikely(crc != m->crc))
    sf_differ("an input has changed while it was handled", low, m->crc, crc);
}

/* V 3: an output has the checksum that the second run computed. */
static void check_outputs(struct sf_context *c) {
  size_t count = c->parts.used / sizeof(struct sf_part);
  if (unlikely(c->part_cursor != count))
    sf_differ("only the first run sends bytes", count, c->part_cursor, 0);
  uint32_t crc = 0;
  for (size_t i = 0; i < count; i++) {
    struct sf_part *p = (struct sf_part *)c->parts.base + i;
    if (p->kind == SF_PART_UNKNOWN)
      continue;
    crc = sf_crc32c(p->kind == SF_PART_NAMED ? 0 : crc, p->bytes, p->length);
    if (unlikely(p->crc != p->crc_first))
      sf_differ("the runs send different bytes", (uint64_t)p->bytes, p->crc_first, p->crc);
    if (unlikely(crc != p->crc))
      sf_differ("an output has changed after it was complete", (uint64_t)p->bytes, p->crc, crc);
    if (p->last)
      crc = 0;
  }
}

SF_API void __sf_end(const struct sf_handler *h, uint64_t result) {
  struct sf_context *c = __sf_own;
  if (unlikely(sf_elsewhere()))
    sf_elsewhere_back(c);
  if (unlikely(c->handler != h || __sf_tls.phase != SF_E2))
    gate_differs(c, h, END_E2);
  end_phase(c, h, END_E2);
  check_frames(c);
  check_closed(c);
  if (unlikely(__sf_tls.cursor != c->entries + c->count))
    sf_differ("the log has grown in the second run", (uint64_t)c->entries, c->count, (uint64_t)(__sf_tls.cursor - c->entries));
  if (unlikely(c->split_state & SF_SPLIT_WAITS && (c->split_state & SF_SPLIT_WAITS) != SF_SPLIT_WAITS))
    sf_differ_name("only the first run waits in", h->name, c->split_state, 0);
  if (unlikely(result != c->result_first))
    sf_differ_name("the runs return different results", h->name, c->result_first, result);
  if (c->parts.used)
    finish_outputs(c);
  compare_words(c);
  if (unlikely(c->ranges.used))
    compare_ranges(c);
  if (unlikely(__sf_tls.partial != 0) && sf_state())
    sf_state_publish(c);
  if (unlikely(c->queue_cursor != c->queue.used))
    sf_differ_name("only the first run calls", ((struct sf_record *)(c->queue.base + c->queue_cursor))->name, 0, 0);
  if (unlikely(c->deferred_cursor != c->deferred.used / sizeof(struct sf_deferred)))
    sf_differ_name("only the first run calls", ((struct sf_deferred *)c->deferred.base)[c->deferred_cursor].name, 0, 0);
  if (c->deferred.used)
    sf_check_leaving(c);
  if (unlikely((mxcsr_get() ^ c->mxcsr_first) & MXCSR_CONTROL))
    sf_differ_name("the runs leave different floating-point modes", h->name, c->mxcsr_first, mxcsr_get());
  if (c->parts.used)
    check_outputs(c);
  for (size_t i = 0; i < c->message_count && !sf_async(); i++)
    check_message(c, &c->messages[i]);
  sf_locks_check(c);
  if (unlikely(sf_async()))
    sf_async_validated(c); /* in the validator: its effects were the first run's */
  take_inputs(c);
  end_phase(c, h, END_V);
  /* Committed. From here on effects happen. */
  commit(c);
}

SF_API uint64_t __sf_hash(const void *bytes, size_t length) {
  const uint8_t *b = bytes;
  uint64_t h = length;
  for (; length >= 8; b += 8, length -= 8) {
    uint64_t v;
    __builtin_memcpy(&v, b, 8);
    h = sf_mix(h, v);
  }
  for (; length; b++, length--)
    h = sf_mix(h, *b);
  return h;
}

/* --validate=async, in the validator: what __sf_mid leaves behind in the thread itself. The table is made from the log. */
extern _Noreturn void sf_second(void);

_Noreturn void sf_async_second(struct sf_context *c, size_t slot_count, uint64_t *table) {
  __sf_tls.table = table;
  __sf_tls.index_mask = (slot_count - 1) << 3;
  c->masks = (uint8_t *)(table + slot_count);
  if (unlikely(c->epoch + 2 >= (uint64_t)1 << SF_EPOCH_BITS)) {
    c->epoch = SF_EPOCH_FIRST;
    void *d = table;
    size_t n = slot_count * 8;
    __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(0) : "memory");
  }
  uint64_t epoch = c->epoch << SF_EPOCH_SHIFT;
  for (size_t i = 0; i < c->count; i++) {
    uintptr_t word = word_of(&c->entries[i]);
    uint64_t key = word << SF_WORD_SHIFT | epoch, bytes = bytes_of(&c->entries[i]);
    size_t s = home(word), gone = 0;
    for (;; s = next(s, &gone)) {
      uint64_t tag = *tag_at(s);
      if ((tag ^ key) <= BYTES) {
        *tag_at(s) = tag | bytes;
        break;
      }
      if ((tag & EPOCH_MASK) != epoch) {
        *tag_at(s) = key | bytes;
        break;
      }
    }
  }
  c->gate_enter = gate(c->event, END_R);
  c->gate_leave = gate(c->event, END_E1);
  c->crc_running = c->leaving = 0;
  c->exempted = 0;
  c->range_cursor = c->queue_cursor = c->deferred_cursor = c->part_cursor = 0;
  mxcsr_set(c->mxcsr);
  *__errno_location() = c->errno_begin;
  __sf_tls.cursor = c->entries + c->count;
  __sf_tls.limit = NULL;
  __sf_tls.partial = 1;
  __sf_tls.epoch_key = epoch + ((uint64_t)1 << SF_EPOCH_SHIFT);
  __sf_tls.key_whole = __sf_tls.epoch_key | BYTES;
  __sf_tls.delta = (uint64_t)1 << SF_EPOCH_SHIFT;
  __sf_tls.phase = SF_E2;
  sf_second();
}
