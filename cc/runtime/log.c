/*
 * Words in the log: the table of tags, entries of the first run (R2), look-ups of the second (R6), and what inline code asks
 * before and behind its stores. Reached from any store, so by store.S, which keeps the program's registers.
 */
#include "log.h"

const char sf_not_logged[] = "a store was not logged";
const char sf_astray[] = "another address was written than was logged";
static const char not_yet_logged[] = "what is written next is not in the log";
static const char wrongly_checked[] = "the check of a store went wrong";

void sf_table_new(struct sf_context *c, size_t count) {
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
  sf_table_new(c, 2 * count);
  for (size_t i = 0; i < count; i++) {
    uint64_t tag = old[i];
    if ((tag & EPOCH_MASK) != __sf_tls.epoch_key)
      continue;
    size_t s = home(tag >> SF_WORD_SHIFT & ~7ull), gone = 0;
    while ((*tag_at(s) & EPOCH_MASK) == __sf_tls.epoch_key)
      s = next(s, &gone);
    *tag_at(s) = tag;
  }
  if (unlikely(c->shadow != NULL))
    __sf_recover.shadow_places(c);
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
  if (unlikely(c->shadow != NULL))
    __sf_recover.shadow_places(c);
  /* Last, as in sf_enlarge. */
  sf_unmap(old, old_capacity * sizeof *old);
  sf_unmap(old_news, old_capacity * sizeof *old_news);
}

SF_COLD void sf_tables_drop(struct sf_context *c) {
  for (size_t i = 0; i < c->tables_old_count; i++)
    sf_unmap(c->tables_old[i], c->tables_old_bytes[i]);
  c->tables_old_count = 0;
}

/* Buffers that a handler did not use count it as one that needed little of them; those that it used are counted where they are emptied. */
SF_COLD void sf_buffers_shrink(struct sf_context *c) {
  struct sf_buffer *all[] = {&c->ranges, &c->arena, &c->queue, &c->deferred, &c->parts};
  bool grown = false;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (!all[i]->used)
      sf_reset(all[i]);
    grown |= all[i]->size > SF_KEPT;
  }
  c->grown = grown;
}

/* Small again after large handlers; called outside handlers. */
SF_COLD void sf_log_shrink(struct sf_context *c) {
  sf_unmap(__sf_tls.table, slots() * 9);
  sf_table_new(c, SF_SLOTS);
  sf_unmap(c->entries, c->capacity * sizeof *c->entries);
  sf_unmap(c->news, c->capacity * sizeof *c->news);
  c->entries = sf_map(SF_WORDS * sizeof *c->entries);
  c->news = sf_map(SF_WORDS * sizeof *c->news);
  c->capacity = SF_WORDS;
  if (unlikely(c->shadow != NULL))
    __sf_recover.shadow_places(c);
}

/* The table is made from the log, of the first run's words. */
void sf_table_of_log(struct sf_context *c, size_t slot_count, uint64_t *table) {
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
}

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
  if (unlikely(own_again()->shadow != NULL))
    __sf_recover.shadow_word(__sf_own, where_of(*tag_at(s), tag), e); /* put together once more */
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

void sf_log_word(struct sf_context *c, uintptr_t word, uint64_t need) {
  if (__sf_tls.phase == SF_E1)
    log_first(c, word, need);
  else
    log_second(c, word, need);
}

bool sf_has_word(uintptr_t word, uint64_t need) {
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
  return sf_has_word(word, need & BYTES) && (need <= BYTES || sf_has_word(word + 8, need >> 8));
}

/* Bytes from bit 8 on are those of the next word: a store that is not aligned. */
void sf_store_slow(uintptr_t at, uint64_t need, const volatile struct sf_store *caller) {
  struct sf_context *c = __sf_own;
  uintptr_t word = at & ~7ull;
  sf_log_word(c, word, need & BYTES);
  if (unlikely(need > BYTES))
    sf_log_word(c, word + 8, need >> 8);
  /* What is not there before the store can still be repaired. */
  if (unlikely(c->shadow != NULL) && unlikely(!ready_for_store(c) || !has_store(caller->at, caller->need)))
    sf_differ(not_yet_logged, caller->at, at, need);
}

/* store.S: an entry has gone to another place than the next of its log. In a table of entries it has struck what is not counted, or the log
   lacks its sum. */
_Noreturn SF_COLD void sf_entry_astray(uintptr_t word, uintptr_t is) {
  struct sf_context *c = own_again();
  bool entry = is - (uintptr_t)c->entries < c->capacity * sizeof *c->entries || (c->shadow && __sf_recover.shadow_has_entry(c, is));
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
  sf_differ(has_store(caller->at, again) ? wrongly_checked : sf_not_logged, caller->at & ~7ull, at, again);
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
  sf_differ(sf_astray, at & ~7ull, 0, need);
}

bool sf_has_stored(struct sf_context *c, uintptr_t at, size_t length) {
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

size_t sf_logged_from(struct sf_context *c, uintptr_t at) {
  for (size_t i = 0; i < range_count(c); i++)
    if (at - range_at(c, i)->at < range_at(c, i)->length)
      return range_at(c, i)->at + range_at(c, i)->length - at;
  for (size_t i = 0; i < c->count; i++)
    if (word_of(&c->entries[i]) == (at & ~7ull) && bytes_of(&c->entries[i]) >> (at & 7) & 1)
      return (size_t)__builtin_ctzll(~(bytes_of(&c->entries[i]) >> (at & 7)));
  return 0;
}
