/* Ranges: copies, fills and loops are logged as a whole; and words that a handler has asked to be left alone. */
#include "log.h"

const char sf_range_not_logged[] = "a range was not logged";
static const char not_yet_logged[] = "what is written next is not in the log";
__thread struct sf_copying sf_copying;

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
    sf_log_word(c, word, need);
  }
}

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
    __sf_state.touch((const void *)at, length);
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
    copy_bytes(old, bytes, length);
    sf_reload();
    if (unlikely(!sf_equal(old, bytes, length)))
      sf_differ("the log did not keep the old value of a range", at, 0, length);
    /* Only now is it in the log: what ends before this leaves a memory to which nothing has been stored, and is put back
       without it. */
    struct sf_range made = {.at = at, .length = length, .old = offset, .after = (size_t)(__sf_tls.cursor - c->entries)};
    if (unlikely(c->shadow != NULL)) {
      made.crc = __sf_recover.shadow_range_crc(&made, old);
      __sf_recover.shadow_range(c, &made);
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
      if (unlikely(!sf_has_word(word, need)))
        return false;
    }
    return true;
  }
  struct piece p = first_piece(c, at, length);
  if (unlikely(p.length < length || p.exempt))
    return true;
  size_t index = ranges_so_far(c) - 1;
  if (unlikely(c->shadow != NULL) && unlikely(!__sf_recover.shadow_has_range(c, index, at, length)))
    return false;
  return likely(index < range_count(c)) && range_at(c, index)->at == at && range_at(c, index)->length == length;
}

/* Before the store: what is not in the log then can still be repaired. */
SF_API void __sf_ready(const void *bytes, size_t length) {
  struct sf_context *c = own_again();
  if (length != 0 && c->shadow != NULL && unlikely(!ready_for_store(c) || !has_bytes(c, sf_home(bytes), length)))
    sf_differ(not_yet_logged, sf_home(bytes), 0, length);
}

static inline void ready(const void *to, const void *from, size_t length) {
  if (likely(own_again()->shadow == NULL))
    return;
  __sf_ready(to, length);
  sf_copying.to = (uintptr_t)to;
  sf_copying.from = (uintptr_t)from;
  sf_copying.length = length;
}

SF_API void __sf_logged(const void *bytes, size_t length) {
  if (length != 0 && unlikely(!has_bytes(__sf_own, sf_home(bytes), length)))
    sf_differ(sf_range_not_logged, sf_home(bytes), 0, length);
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
  if (unlikely(c->shadow != NULL || sf_state() || sf_async() || in_frames(c, at)) || some_ignored(c, index))
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
  struct sf_range made = {
      .at = at, .length = room, .old = c->arena.used, .after = (size_t)(__sf_tls.cursor - c->entries), .room = (uint32_t)room};
  copy_bytes(sf_grow(&c->arena, 2 * room), (const void *)at, room);
  *(struct sf_range *)sf_grow(&c->ranges, sizeof made) = made;
  c->open++;
  return (struct sf_piece){at + room, index + 1};
}

SF_API void __sf_range_end(uint64_t next, uint64_t id) { range_close(__sf_own, next, id); }

SF_API void *__sf_memcpy(void *to, const void *from, size_t length) {
  __sf_log(to, length);
  ready(to, from, length);
  ends_at(copy_bytes(to, from, length), (uint8_t *)to + length, length);
  sf_copying.length = 0;
  __sf_logged(to, length);
  return to;
}

SF_API void *__sf_memmove(void *to, const void *from, size_t length) {
  __sf_log(to, length);
  ready(to, from, length);
  if ((uintptr_t)to - (uintptr_t)from >= length) {
    ends_at(copy_bytes(to, from, length), (uint8_t *)to + length, length);
  } else {
    uint8_t *d = (uint8_t *)to + length - 1;
    const void *s = (const uint8_t *)from + length - 1;
    size_t n = length;
    __asm__ volatile("std\n\trep movsb\n\tcld" : "+D"(d), "+S"(s), "+c"(n)::"memory");
    ends_at(d, (uint8_t *)to - 1, length);
  }
  sf_copying.length = 0;
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
  sf_copying.length = 0;
  __sf_logged(to, length);
  return to;
}

/* From here on in either run: a range that was logged before is one in both. */
void sf_ignore_words(struct sf_context *c, uintptr_t at, size_t length) {
  if (c->ignored_count == SF_IGNORED)
    sf_stop("a handler may have at most 8 ignored ranges and exceptions at once",
            "ignore fewer, say `ignore` in a policy, or split the handler");
  c->ignored[c->ignored_count++] = (struct sf_ignored){at, length, ranges_so_far(c)};
  __sf_tls.limit = NULL; /* store.S does not know about these */
  __sf_tls.shadow = __sf_tls.shadow_again = NULL;
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
