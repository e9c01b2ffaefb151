/*
 * Messages outside handlers: what the envelope has checked is held against what a handler takes in, and what a handler
 * has sent against what leaves.
 *
 *     frame checked --> copy kept here ......... compared by sf_input_edge, in the first run
 *         |                                          ^
 *         +--> program's buffer --(carries)--> where the handler finds it
 *
 *     second run --> checksum of an output ... kept here, compared when the bytes are handed to the kernel
 *                        |                           ^
 *                        +--> reply, lists of replies, vector of sendmsg
 *
 * Without this the checksum of an input is one of what lies in memory when the handler begins, and that of an output one of what
 * lies there when it is sent: a fault between two of these points is in both runs, and in the seal.
 *
 * Received bytes are known by address. A policy names the functions that move them (`carries`); any other reading to the
 * same place ends what is known about their values.
 * Of a handler that a policy calls one of a `stream` each byte of an input must have been received, and none may have been
 * handled before: so a wrong count of what a buffer holds is seen, which shows the handler bytes of an earlier message.
 * Outputs are known by where they end, so that one that is sent in several goes is found again. Of bytes that no handler
 * or `output` call has announced only so many may leave as were announced without their content (`later`, `unless`,
 * what the table has lost): so a wrong address, a wrong length and bytes of another reply are seen, too.
 *
 * Invariants
 *  1. All of it belongs to one thread: that which reads a connection, runs its handlers and sends.
 *  2. What the tables forget makes checks weaker, never wrong: a received byte without a copy is not compared, a
 *     forgotten one's number is added to those that may be handled unknown, and a forgotten output's to those that may
 *     leave unknown.
 *  3. Nothing is kept in programs without the envelope.
 *
 * Not covered: replies that are left out as a whole; bytes that another thread sends than the one whose handler made
 * them (neither compared nor refused, unless that thread has announced others); datagrams.
 * See Behrens et al., "Scalable Error Isolation", NSDI 2015, Section 3.3 and R7.
 */
#include "runtime.h"

/* Frames and what is left of them when handlers have taken theirs; 16 questions of one read lie in one piece. */
#define RECEIVED_MAX 64
/* Four frames of 16 KiB (SF_PAYLOAD_MAX of cc/envelope): of longer values the end is compared. */
#define COPIES (64 << 10)
/* Parts of replies that have not left: a reply of memcached has three, and as many connections wait as a poll reports. */
#define OUTPUTS_MAX 1024
/* Up to here an output that leaves in several goes is looked at as a whole each time. */
#define WHOLE_BYTES (64 << 10)

struct received {
  uintptr_t at;
  size_t length;
  const uint8_t *copy; /* NULL: received, with values that nobody knows */
};

struct output {
  uintptr_t begin, end;
  uint32_t crc;
  uint32_t times;    /* that it has been announced and has not left */
  uint32_t next;     /* of the same bucket, or of the free ones; index + 1, 0: none */
};

struct sf_provenance {
  size_t received_count;
  struct received received[RECEIVED_MAX]; /* oldest first */
  size_t copies_used;
  uint64_t forgotten; /* bytes that were received and are in no span */
  bool announced; /* this thread has announced outputs, so what it sends is announced */
  uint64_t unknown; /* bytes that may leave without having been announced */
  uint32_t used, spare, clock;
  uint32_t buckets[OUTPUTS_MAX];
  struct output outputs[OUTPUTS_MAX];
  uint8_t copies[COPIES];
  uint8_t thirds[COPIES]; /* with --recover, of what is in `copies` */
  uint64_t mended;        /* the event for which an input was put right */
};

/* Of cc/envelope/wrap.c. */
extern const int sf_envelope_linked __attribute__((weak));

/* What came to this thread before it had a provenance: the latest readings, and how much there was before these. */
#define EARLY_MAX 4
static __thread struct {
  struct sf_span latest[EARLY_MAX];
  size_t count;
  uint64_t before;
} early __attribute__((tls_model("initial-exec")));

static void add(struct sf_provenance *, struct received);
static void forget(struct sf_provenance *, uintptr_t low, uintptr_t high);

static struct sf_provenance *provenance_of(struct sf_context *c) {
  if (unlikely(!c->provenance)) {
    if (!(SF_CHECKED(INPUTS) || SF_CHECKED(OUTPUTS)) || &sf_envelope_linked == NULL)
      return NULL;
    c->provenance = sf_map(sizeof *c->provenance);
    c->provenance->forgotten = early.before;
    for (size_t i = 0; i < early.count; i++) {
      forget(c->provenance, early.latest[i].at, early.latest[i].at + early.latest[i].length);
      add(c->provenance, (struct received){early.latest[i].at, early.latest[i].length, NULL});
    }
    early.count = early.before = 0;
    if (c->shadow)
      __sf_recover.shadow_places(c);
  }
  return c->provenance;
}

void sf_provenance_thread(struct sf_context *c) {
  if (c->provenance)
    sf_unmap(c->provenance, sizeof *c->provenance);
  c->provenance = NULL;
  if (c->shadow)
    __sf_recover.shadow_places(c);
}

/* Inputs. */

static void drop_provenance(struct sf_provenance *k, size_t index) {
  k->received_count--;
  for (size_t i = index; i < k->received_count; i++)
    k->received[i] = k->received[i + 1];
}

/* Where the copy of what lies `by` bytes further on is. */
static inline const uint8_t *copy_at(const struct received *r, size_t by) { return r->copy ? r->copy + by : NULL; }

static void add(struct sf_provenance *k, struct received r) {
  struct received *last = &k->received[k->received_count - 1];
  if (k->received_count && last->at + last->length == r.at && !last->copy == !r.copy && (!r.copy || last->copy + last->length == r.copy)) {
    last->length += r.length;
    return;
  }
  if (k->received_count == RECEIVED_MAX) {
    k->forgotten += k->received[0].length;
    drop_provenance(k, 0);
  }
  k->received[k->received_count++] = r;
}

/* Other bytes are at [low, high) from here on. What is known before and behind them stays. */
static void forget(struct sf_provenance *k, uintptr_t low, uintptr_t high) {
  for (size_t i = k->received_count; i-- > 0;) {
    struct received *r = &k->received[i], whole = *r;
    uintptr_t end = whole.at + whole.length;
    if (end <= low || whole.at >= high)
      continue;
    if (whole.at < low && end > high) {
      r->length = low - whole.at;
      add(k, (struct received){high, end - high, copy_at(&whole, high - whole.at)});
      i = k->received_count; /* `add` may have moved what is there: begin again, it no longer overlaps */
    } else if (whole.at < low) {
      r->length = low - whole.at;
    } else if (end > high) {
      *r = (struct received){high, end - high, copy_at(&whole, high - whole.at)};
    } else {
      drop_provenance(k, i);
    }
  }
}

/* Room for the copy of a frame, in which it is then checked; nothing in programs without handlers. */
SF_API uint8_t *sf_received_room(size_t length) {
  struct sf_provenance *k = SF_CHECKED(INPUTS) && length <= COPIES ? provenance_of(sf_context()) : NULL;
  if (!k)
    return NULL;
  if (k->copies_used + length > COPIES)
    k->copies_used = 0;
  uint8_t *room = k->copies + k->copies_used;
  k->copies_used += length;
  for (size_t i = k->received_count; i-- > 0;)
    if (k->received[i].copy < room + length && k->received[i].copy + k->received[i].length > room)
      k->received[i].copy = NULL;
  return room;
}

/* The bytes at `at` are those of a frame whose copy has been checked. */
SF_API void sf_received(const void *at, size_t length, const uint8_t *copy) {
  struct sf_provenance *k = provenance_of(sf_context());
  for (size_t i = 0; sf_recovers() && copy && i < length; i++) {
    uint8_t own = ((const uint8_t *)at)[i], *third = k->thirds + (copy - k->copies) + i;
    *third = own;
    if (own != copy[i]) /* already one of two is wrong, so like neither */
      *third = (uint8_t)(own + 1) == copy[i] ? (uint8_t)(own + 2) : (uint8_t)(own + 1);
  }
  forget(k, (uintptr_t)at, (uintptr_t)at + length);
  add(k, (struct received){(uintptr_t)at, length, copy});
}

/* Bytes have come to `at` whose values nobody has checked. */
SF_API void sf_received_unknown(const void *at, size_t length) {
  struct sf_context *c = __sf_own;
  if (!SF_CHECKED(INPUTS) || !length)
    return;
  if (!c || !c->provenance) {
    size_t i = 0;
    while (i < early.count && early.latest[i].at != (uintptr_t)at)
      i++;
    if (i == EARLY_MAX) {
      early.before += early.latest[0].length;
      sf_copy(early.latest, early.latest + 1, sizeof early.latest - sizeof early.latest[0]);
      i--;
    } else if (i < early.count) {
      early.before += early.latest[i].length > length ? early.latest[i].length - length : 0;
    } else {
      early.count++;
    }
    early.latest[i] = (struct sf_span){(uintptr_t)at, length};
    return;
  }
  forget(c->provenance, (uintptr_t)at, (uintptr_t)at + length);
  add(c->provenance, (struct received){(uintptr_t)at, length, NULL});
}

/* A connection has ended: its buffers are anybody's, and what lies there may change. */
SF_API void sf_received_none(void) {
  struct sf_context *c = __sf_own;
  for (size_t i = 0; c && c->provenance && i < c->provenance->received_count; i++)
    c->provenance->received[i].copy = NULL;
}

/* What is known about [from, from + length) holds at `to`, and no longer where it was; what was known about that is past. */
static void follow(struct sf_provenance *k, uintptr_t to, uintptr_t from, size_t length) {
  struct received moved[RECEIVED_MAX];
  size_t count = 0;
  for (size_t i = 0; i < k->received_count; i++) {
    struct received r = k->received[i];
    uintptr_t low = r.at > from ? r.at : from, high = r.at + r.length < from + length ? r.at + r.length : from + length;
    if (low < high)
      moved[count++] = (struct received){to + (low - from), high - low, copy_at(&r, low - r.at)};
  }
  forget(k, from, from + length);
  forget(k, to, to + length);
  for (size_t i = 0; i < count; i++)
    add(k, moved[i]);
}

/* What moves before there is a provenance is not followed, but counted. */
static struct sf_provenance *known(size_t length) {
  struct sf_context *c = __sf_own;
  if (unlikely(early.count != 0) && (!c || !c->provenance))
    early.before += length;
  return c && c->provenance && c->provenance->received_count && __sf_tls.phase == SF_OUTSIDE ? c->provenance : NULL;
}

extern void *memmove(void *, const void *, size_t);
extern void *realloc(void *, size_t);

void sf_provenance_moved(uintptr_t to, uintptr_t from, size_t length) {
  struct sf_provenance *k = known(length);
  if (unlikely(k != NULL) && length && to != from)
    follow(k, to, from, length);
}

/* memcpy and memmove of functions that `carries` names, outside handlers. */
SF_API void *__sf_provenance_move(void *to, const void *from, size_t length) {
  memmove(to, from, length);
  sf_provenance_moved((uintptr_t)to, (uintptr_t)from, length);
  return to;
}

SF_API void *__sf_provenance_realloc(void *old, size_t size) {
  uintptr_t from = (uintptr_t)old;
  void *at = realloc(old, size);
  if (at && from)
    sf_provenance_moved((uintptr_t)at, from, size);
  return at;
}

struct difference {
  const char *what;
  uint64_t at, first, second;
};

/* Programs that recover look a second time, since a fault may have struck the looking: what then is right was right. */
static SF_COLD void found_provenance(const struct difference *d, bool not_again) {
  if (not_again)
    sf_tell_held(d->what, ", but not when looked at again");
  else
    sf_differ(d->what, d->at, d->first, d->second);
}

/* Of [begin, end), how much has been received and not been handled. Spans do not overlap. */
static size_t there(const struct sf_provenance *k, uintptr_t begin, uintptr_t end) {
  size_t bytes = 0;
  for (size_t i = 0; i < k->received_count; i++) {
    const struct received *r = &k->received[i];
    uintptr_t low = r->at > begin ? r->at : begin, high = r->at + r->length < end ? r->at + r->length : end;
    bytes += low < high ? high - low : 0;
  }
  return bytes;
}

/* Phase I: the message is what has been received, as far as that is known. A line: and what ended it, where the program has
   put a zero, was the end of a line. Of a stream: and nothing of it was handled before. */
static __attribute__((noinline)) bool input_differs(struct sf_context *c, const void *message, size_t length, enum sf_message_kind kind,
                                                    struct difference *d) {
  struct sf_provenance *k = c->provenance;
  uintptr_t begin = (uintptr_t)message, end = begin + length;
  for (size_t i = 0; i < k->received_count; i++) {
    const struct received *r = &k->received[i];
    uintptr_t low = r->at > begin ? r->at : begin, high = r->at + r->length < end ? r->at + r->length : end;
    if (!r->copy)
      continue;
    if (low < high && unlikely(!sf_equal((const void *)low, r->copy + (low - r->at), high - low)))
      return *d = (struct difference){"an input has changed since it was received", low, high - low, 0}, true;
    if (kind >= SF_EDGE_LINE && end >= r->at && end - r->at < r->length) {
      uint8_t last = r->copy[end - r->at];
      if (unlikely(last != '\r' && last != '\n'))
        return *d = (struct difference){"an input ends where no line has ended", end, last, 0}, true;
      if (kind == SF_EDGE_CRLF && last == '\n' && length > 1 && end > r->at && unlikely(r->copy[end - r->at - 1] == '\r'))
        return *d = (struct difference){"an input holds a byte of its line's end", end - 1, last, 0}, true;
    }
  }
  if (SF_CHECKED(INPUTS) && c->of_stream) {
    size_t known = there(k, begin, end);
    if (unlikely(length - known > k->forgotten))
      return *d = (struct difference){"an input holds bytes that were not received, or were handled before", begin, length, known}, true;
  }
  return false;
}

/* By two of three. More than a bit, or one in the next messages again, are the program's doing: it writes where it receives. */
static SF_COLD bool mend_input(struct sf_context *c, uintptr_t begin, uintptr_t end) {
  struct sf_provenance *k = c->provenance;
  unsigned bits = 0;
  if (k->mended && c->event != k->mended && c->event - k->mended < SF_IDLE)
    return false;
  for (size_t i = 0; i < k->received_count; i++) {
    const struct received *r = &k->received[i];
    uintptr_t low = r->at > begin ? r->at : begin, high = r->at + r->length < end ? r->at + r->length : end;
    for (uintptr_t at = low; r->copy && at < high; at++) {
      uint8_t *own = (uint8_t *)at, *copy = k->copies + (r->copy - k->copies) + (at - r->at);
      uint8_t third = k->thirds[copy - k->copies];
      bits += (unsigned)__builtin_popcount(*own ^ *copy);
      if (*own == *copy)
        continue;
      if (bits > 1 || (*copy != third && *own != third))
        return false;
      *own = *copy = third;
    }
  }
  k->mended = c->event;
  return true;
}

bool sf_provenance_input(struct sf_context *c, const void *message, size_t length, enum sf_message_kind kind) {
  struct difference d, again;
  if (unlikely(input_differs(c, message, length, kind, &d))) {
    bool stays = !sf_recovers() || input_differs(c, message, length, kind, &again);
    if (stays && sf_recovers() && mend_input(c, (uintptr_t)message, (uintptr_t)message + length) &&
        !input_differs(c, message, length, kind, &again)) {
      sf_tell_held(d.what, ", and not in two of three places");
      return true;
    }
    found_provenance(&d, !stays);
  }
  c->of_stream = false;
  return false;
}

void sf_provenance_restore(struct sf_context *c, const void *message, size_t length, uint32_t crc) {
  struct sf_provenance *k = c->provenance;
  uintptr_t begin = (uintptr_t)message;
  for (size_t i = 0; i < k->received_count; i++) {
    const struct received *r = &k->received[i];
    /* In one piece, as nearly all are. */
    if (!r->copy || begin - r->at > r->length || length > r->length - (begin - r->at))
      continue;
    const uint8_t *copy = r->copy + (begin - r->at);
    if (sf_crc32c(0, message, length) != crc && sf_crc32c(0, copy, length) == crc)
      sf_copy((void *)begin, copy, length);
    return;
  }
}

/* The end of a line of which the program has taken the first byte for its zero: behind that, or behind the line feed that
   follows a carriage return. */
static uintptr_t line_end(const struct sf_provenance *k, uintptr_t end) {
  for (size_t i = 0, bytes = 0; i < k->received_count && bytes < 2; i++) {
    const struct received *r = &k->received[i];
    if (end - r->at >= r->length)
      continue;
    uint8_t byte = r->copy ? r->copy[end - r->at] : *(const uint8_t *)end;
    if (byte == '\n')
      return end + 1;
    if (bytes == 1 || (r->copy ? byte != '\r' : byte != 0))
      break;
    end++, bytes++;
    i = (size_t)-1; /* the next byte may lie in another span */
  }
  return end;
}

/* Handled. Streams are taken from their beginning to their end: what lies before, in the same frame, is past as well. */
void sf_provenance_taken(struct sf_context *c, const void *message, size_t length, enum sf_message_kind kind) {
  struct sf_provenance *k = c->provenance;
  uintptr_t begin = (uintptr_t)message, end = begin + length;
  if (c->handler->flags & SF_HANDLER_STREAM) {
    size_t unknown = length - there(k, begin, end);
    k->forgotten -= unknown < k->forgotten ? unknown : k->forgotten;
  }
  if (kind >= SF_EDGE_LINE)
    end = line_end(k, end);
  for (size_t i = k->received_count; i-- > 0;) {
    struct received *r = &k->received[i];
    uintptr_t high = r->at + r->length;
    if (r->at >= end || high <= begin)
      continue;
    if (high <= end)
      drop_provenance(k, i);
    else
      *r = (struct received){end, high - end, copy_at(r, end - r->at)};
  }
}

/* Outputs. */

static uint32_t *bucket_of(struct sf_provenance *k, uintptr_t end) { return &k->buckets[sf_mix(end, 0) % OUTPUTS_MAX]; }

static void take_out_provenance(struct sf_provenance *k, struct output *o) {
  uint32_t index = (uint32_t)(o - k->outputs) + 1;
  for (uint32_t *at = bucket_of(k, o->end); *at; at = &k->outputs[*at - 1].next)
    if (*at == index) {
      *at = o->next;
      o->times = 0;
      o->next = k->spare;
      k->spare = index;
      return;
    }
}

void sf_provenance_unknown(struct sf_context *c, size_t length) {
  struct sf_provenance *k = SF_CHECKED(OUTPUTS) ? provenance_of(c) : NULL;
  if (!k)
    return;
  k->announced = true;
  k->unknown += length;
}

void sf_provenance_output(struct sf_context *c, const void *bytes, size_t length, uint32_t crc) {
  struct sf_provenance *k = SF_CHECKED(OUTPUTS) ? provenance_of(c) : NULL;
  if (!k || !length)
    return;
  k->announced = true;
  uintptr_t begin = (uintptr_t)bytes, end = begin + length;
  uint32_t *bucket = bucket_of(k, end);
  for (uint32_t at = *bucket; at; at = k->outputs[at - 1].next) {
    struct output *o = &k->outputs[at - 1];
    if (o->begin == begin && o->end == end) {
      /* The same bytes twice on their way; or, as they are others now, the first never leave. */
      o->times = o->crc == crc ? o->times + 1 : 1;
      o->crc = crc;
      return;
    }
  }
  if (unlikely(!k->spare && k->used == OUTPUTS_MAX)) {
    struct output *oldest = &k->outputs[k->clock++ % OUTPUTS_MAX];
    k->unknown += (oldest->end - oldest->begin) * oldest->times;
    take_out_provenance(k, oldest);
  }
  uint32_t index = k->spare;
  if (index)
    k->spare = k->outputs[index - 1].next;
  else
    index = ++k->used;
  bucket = bucket_of(k, end);
  k->outputs[index - 1] = (struct output){begin, end, crc, 1, *bucket};
  *bucket = index;
}

/* Layout of struct iovec. */
struct part {
  const uint8_t *base;
  size_t length;
};

static struct output *announced(struct sf_provenance *k, const struct part *p, bool compare) {
  uintptr_t base = (uintptr_t)p->base, end = base + p->length;
  for (uint32_t at = *bucket_of(k, end); at; at = k->outputs[at - 1].next) {
    struct output *o = &k->outputs[at - 1];
    if (o->end != end || o->begin > base)
      continue;
    if (!compare || (o->begin < base && end - o->begin > WHOLE_BYTES) ||
        likely(sf_crc32c(0, (const void *)o->begin, end - o->begin) == o->crc))
      return o;
  }
  return NULL;
}

static __attribute__((noinline)) bool outputs_differ(struct sf_context *c, const struct part *parts, size_t count, size_t bytes,
                                                     struct difference *d) {
  uint64_t unknown = 0, allowed = c->provenance->unknown;
  for (size_t i = 0; i < count && bytes; i++) {
    if (!parts[i].length)
      continue;
    if (unlikely(!announced(c->provenance, &parts[i], true))) {
      unknown += parts[i].length;
      if (unknown > allowed)
        return *d = (struct difference){announced(c->provenance, &parts[i], false)
                                            ? "an output has changed after its handler"
                                            : "bytes leave that no handler has sent (or a copy of them: name who is given it)",
                                        (uint64_t)parts[i].base, parts[i].length, allowed},
               true;
    }
    bytes -= parts[i].length < bytes ? parts[i].length : bytes;
  }
  return false;
}

/* Called with what is handed to the kernel, of which up to `bytes` may leave. Stops the program if a byte is not what was
   announced. */
SF_API void sf_outputs_leave(const struct part *parts, size_t count, size_t bytes) {
  struct sf_context *c = __sf_own;
  struct difference d, again;
  if (c && c->provenance && c->provenance->announced && unlikely(outputs_differ(c, parts, count, bytes, &d)))
    found_provenance(&d, sf_recovers() && !outputs_differ(c, parts, count, bytes, &again));
}

/* So many bytes of them have left. */
SF_API void sf_outputs_left(const struct part *parts, size_t count, size_t bytes) {
  struct sf_context *c = __sf_own;
  if (!c || !c->provenance || !c->provenance->announced)
    return;
  struct sf_provenance *k = c->provenance;
  for (size_t i = 0; i < count && bytes; i++) {
    size_t left = parts[i].length < bytes ? parts[i].length : bytes;
    struct output *o = left ? announced(k, &parts[i], false) : NULL;
    if (o && left == parts[i].length && --o->times == 0)
      take_out_provenance(k, o);
    else if (!o)
      k->unknown -= left < k->unknown ? left : k->unknown;
    bytes -= left;
  }
}

/* A call that `output` names, outside handlers: announced with the checksum that the bytes have now. */
SF_API void __sf_output_outside(const void *bytes, uint64_t length, uint64_t skip) {
  if (!SF_CHECKED(OUTPUTS) || &sf_envelope_linked == NULL)
    return;
  struct sf_context *c = sf_context();
  if (skip || __sf_tls.phase != SF_OUTSIDE)
    sf_provenance_unknown(c, length);
  else
    sf_provenance_output(c, bytes, length, sf_crc32c(0, bytes, length));
}
