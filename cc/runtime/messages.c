/*
 * Inputs and outputs of handlers, and their checksums: I, R7, V 2 and V 3. What is compared before a handler and behind it, with
 * what the kernel gave and takes, is in provenance.c.
 */
#include "log.h"

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
    __sf_async.reads(message, length);
  uint32_t crc = sf_crc32c(0, message, length);
  /* One that is wrong from the beginning stays so, whatever is repaired. */
  for (uint32_t again; unlikely(c->shadow != NULL) && (again = sf_crc32c(0, message, length)) != crc;)
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
  while (unlikely(c->provenance != NULL) && sf_provenance_input(c, message, length, kind))
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
    __sf_async.reads(bytes, length);
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
    __sf_async.reads(bytes, length);
  if (__sf_tls.phase == SF_E1) {
    struct sf_part *p = sf_grow(&c->parts, sizeof *p);
    *p = (struct sf_part){.bytes = bytes, .length = length, .last = !skip, .kind = kind};
    return;
  }
  struct sf_part *p = (struct sf_part *)c->parts.base + c->part_cursor;
  if (unlikely(c->part_cursor >= c->parts.used / sizeof *p || (uintptr_t)p->bytes != sf_home(bytes) || p->length != length ||
               p->kind != kind))
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
    __sf_async.hold(); /* what leaves with it is held, if anything is */
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

/* They have passed V, and are on their way. */
void sf_commit_outputs(struct sf_context *c) {
  size_t count = c->parts.used / sizeof(struct sf_part);
  for (size_t i = 0; i < count; i++) {
    struct sf_part *p = (struct sf_part *)c->parts.base + i;
    if (p->last)
      keep_crc(c, p->crc);
    if (p->kind == SF_PART_UNKNOWN)
      sf_provenance_unknown(c, p->length);
    else if (p->kind == SF_PART_NAMED)
      sf_provenance_output(c, p->bytes, p->length, p->crc);
  }
  sf_reset(&c->parts);
}

/* Whether the handler has written somewhere in [low, high). */
static bool touched_messages(struct sf_context *c, uintptr_t low, uintptr_t high) {
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
    n = sf_logged_from(c, at);
    if (n == 0)
      return false;
  }
  return true;
}

/* R7: the checksum of an output is taken after its last write, which may come after the call that a policy names. Before the words
   are compared: what changes from here on differs from the checksum, what has changed before from the first run. Where the handler
   has not written at all, the call was after the last write. */
void sf_finish_outputs(struct sf_context *c) {
  struct sf_part *p = (struct sf_part *)c->parts.base, *end = p + c->parts.used / sizeof *p;
  for (; p != end; p++) {
    if (p->kind != SF_PART_NAMED || (p->length > SHORT && !touched_messages(c, (uintptr_t)p->bytes, (uintptr_t)p->bytes + p->length)))
      continue;
    uint32_t crc = sf_crc32c(0, sf_own((void *)p->bytes), p->length);
    if (unlikely(crc != p->crc) && written_whole(c, (uintptr_t)p->bytes, (uintptr_t)p->bytes + p->length))
      p->crc = p->crc_first = crc;
  }
}

/* V 2: an input still has the checksum that it came with. What the handler itself has overwritten is taken from O. */
void sf_check_message(struct sf_context *c, const struct sf_message *m) {
  uintptr_t low = (uintptr_t)m->bytes, high = low + m->length;
  const uint8_t *bytes = m->bytes;
  size_t mark = c->arena.used;
  if (touched_messages(c, low, high)) {
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
void sf_check_outputs(struct sf_context *c) {
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
