/*
 * Frames of a connection, beneath a server that knows nothing of them.
 *
 *           first bytes are the asking line            frame damaged
 *   ASKABLE --------------------------------> FRAMED ----------------> BROKEN (reads see the end of the stream)
 *      | anything else
 *      +--> PLAIN (calls go through)
 *
 * Receiving. The usual case is one call of the kernel: header and payload arrive together, the payload straight in the
 * program's buffer, where it is checked in place. What lies behind it (pipelined frames) is checked and moved up; a
 * frame that has not arrived whole waits in `hold`. A frame that does not fit the program's buffer is checked in
 * `hold`, too, and its last byte stays in the socket until the program has taken the rest (rule 3 of envelope.h).
 *
 * Sending. A header goes out in front of up to SF_PAYLOAD_MAX bytes. If the kernel takes a frame only in part, the
 * program is told how many of its own bytes went, as always, and offers the rest again; those bytes belong to the frame
 * that was begun. A program that offers other bytes instead sends a frame that does not check.
 */
#include "envelope.h"
#include "system.h"

enum state { NONE, ASKABLE, PLAIN, FRAMED, BROKEN };

struct stream {
  uint64_t nonce;
  uint32_t received, sent; /* sequence numbers that come next */
  uint8_t state;
  uint8_t header_have;  /* bytes of `header` that have arrived, 0 to 16 */
  uint8_t last_waits;   /* the held frame is whole and checked; its last byte is still in the socket */
  uint8_t out_left_header; /* bytes of `out_header` that have not been sent */
  uint32_t hold_have;   /* payload bytes in `hold` */
  uint32_t hold_given;  /* of them, handed to the program */
  uint32_t out_left;    /* payload bytes of the frame on its way out that the kernel has not taken */
  uint8_t header[SF_FRAME_HEADER];
  uint8_t out_header[SF_FRAME_HEADER];
  uint8_t *hold;
};

struct sf_envelope_counts sf_envelope_counts;

static void count(uint64_t *counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

/* Address space for every descriptor the kernel could give (fs.nr_open is 1,048,576 by default): pages appear when
   they are touched. */
#define DESCRIPTORS_MAX (1 << 20)
static struct stream *streams;

static struct stream *stream_of(int descriptor) {
  struct stream *all = __atomic_load_n(&streams, __ATOMIC_ACQUIRE);
  if (!all || descriptor < 0 || descriptor >= DESCRIPTORS_MAX)
    return 0;
  return &all[descriptor];
}

static void *map(size_t length) {
  /* PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS|MAP_NORESERVE */
  long at = sf_call6(SF_SYS_MMAP, 0, (long)length, 3, 0x4022, -1, 0);
  if (at < 0 && at > -4096)
    sf_stop("the envelope could not map memory for its connections\n");
  return (void *)at;
}

void sf_stream_accepted(int descriptor) {
  if (!__atomic_load_n(&streams, __ATOMIC_ACQUIRE)) {
    struct stream *fresh = map(sizeof(struct stream) * DESCRIPTORS_MAX), *none = 0;
    if (!__atomic_compare_exchange_n(&streams, &none, fresh, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      sf_call6(SF_SYS_MUNMAP, (long)fresh, sizeof(struct stream) * DESCRIPTORS_MAX, 0, 0, 0, 0);
  }
  struct stream *s = stream_of(descriptor);
  if (!s)
    return;
  sf_stream_closed(descriptor);
  s->state = ASKABLE;
}

void sf_stream_closed(int descriptor) {
  struct stream *s = stream_of(descriptor);
  if (!s || s->state == NONE)
    return;
  if (sf_received_none)
    sf_received_none();
  if (s->hold)
    sf_call6(SF_SYS_MUNMAP, (long)s->hold, SF_PAYLOAD_MAX, 0, 0, 0, 0);
  memset(s, 0, sizeof *s);
}

int sf_stream_is_framed(int descriptor) {
  struct stream *s = stream_of(descriptor);
  return s && (s->state == FRAMED || s->state == BROKEN);
}

static uint32_t word(const uint8_t *at) {
  uint32_t value;
  __builtin_memcpy(&value, at, 4);
  return value;
}

/* The checksum of a frame, from that of its payload. */
static uint32_t seal(uint32_t payload_crc, uint64_t nonce, uint32_t sequence, uint32_t length) {
  struct {
    uint64_t nonce;
    uint32_t sequence, length;
  } trailer = {nonce, sequence, length};
  _Static_assert(sizeof trailer == 16, "Direction::checksum in crates/envelope/src/stream.rs");
  return sf_envelope_crc32c(payload_crc, &trailer, sizeof trailer);
}

static long broken(int descriptor, struct stream *s, enum sf_damage why) {
  count(&sf_envelope_counts.damaged);
  s->state = BROKEN;
  sf_envelope_dropped(descriptor, why);
  return 0;
}

/* The length that a header gives, or 0 when it is damaged. */
static uint32_t frame_length(const uint8_t *header) {
  uint32_t length = word(header);
  return length == ~word(header + 4) && length <= SF_PAYLOAD_MAX ? length : 0;
}

/* Checks a header's numbers; 0, or what is wrong. */
static enum sf_damage header_damage(const struct stream *s, const uint8_t *header) {
  if (!frame_length(header))
    return SF_DAMAGE_LENGTH;
  return word(header + 8) == s->received ? 0 : SF_DAMAGE_SEQUENCE;
}

static int payload_is_sound(const struct stream *s, const uint8_t *header, const uint8_t *payload) {
  uint32_t length = word(header);
  return seal(sf_envelope_crc32c(0, payload, length), s->nonce, s->received, length) == word(header + 12);
}

/* Payload bytes that have been checked go to the program; `copy` is what was checked. */
static void hand_out(void *into, const void *from, size_t length, const uint8_t *copy) {
  if (into != from)
    memmove(into, from, length);
  if (copy)
    sf_received(into, length, copy);
  else if (sf_received_unknown)
    sf_received_unknown(into, length);
}

/* Keeps a copy of bytes where somebody wants to compare them later. */
static uint8_t *copied(const void *from, size_t length) {
  uint8_t *room = sf_received_room ? sf_received_room(length) : 0;
  if (room)
    memcpy(room, from, length);
  return room;
}

static void frame_taken(struct stream *s) {
  s->received++;
  count(&sf_envelope_counts.opened);
}

static int hexadecimal(const char *text, uint64_t *value) {
  *value = 0;
  for (int i = 0; i < 16; i++) {
    char c = text[i];
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0)
      return 0;
    *value = *value << 4 | (uint64_t)digit;
  }
  return 1;
}

/* Looks at a connection's first bytes. Returns 1 when the caller goes on in the state that was found, else a result. */
static int negotiate(int descriptor, struct stream *s, long *result) {
  static const char question[] = "steadfast envelope 1 ";
  static const char agreed[] = "STEADFAST envelope 1\r\n";
  char line[SF_HELLO_BYTES];
  long got = sf_recv(descriptor, line, sizeof line, SF_MSG_PEEK);
  if (got <= 0)
    return *result = got, 0;
  /* A line that arrives in pieces is not waited for: the client sees the stock server's answer. */
  if (got < (long)sizeof line || memcmp(line, question, sizeof question - 1) || line[37] != '\r' || line[38] != '\n' ||
      !hexadecimal(line + sizeof question - 1, &s->nonce)) {
    s->state = PLAIN;
    return 1;
  }
  sf_recv(descriptor, line, sizeof line, 0);
  /* 22 bytes into an empty send buffer are taken whole, or the connection is of no use. */
  long put = sf_call6(SF_SYS_SENDTO, descriptor, (long)agreed, sizeof agreed - 1, SF_MSG_NOSIGNAL, 0, 0);
  if (put != (long)sizeof agreed - 1)
    return s->state = BROKEN, *result = 0, 0;
  s->state = FRAMED;
  count(&sf_envelope_counts.agreed);
  return 1;
}

/* Hands out of a frame that is held whole. */
static long give(int descriptor, struct stream *s, uint8_t *into, size_t length) {
  size_t left = s->hold_have - s->hold_given;
  size_t part = left < length ? left : length;
  hand_out(into, s->hold + s->hold_given, part, copied(s->hold + s->hold_given, part));
  s->hold_given += (uint32_t)part;
  if (s->hold_given == s->hold_have) {
    uint8_t last;
    sf_recv(descriptor, &last, 1, 0);
    s->last_waits = 0;
    s->hold_have = s->hold_given = 0;
    s->header_have = 0;
    frame_taken(s);
  }
  return (long)part;
}

/* Goes on with a frame whose first part arrived earlier. */
static long read_held(int descriptor, struct stream *s, uint8_t *into, size_t length) {
  if (s->last_waits)
    return give(descriptor, s, into, length);
  while (s->header_have < SF_FRAME_HEADER) {
    long got = sf_recv(descriptor, s->header + s->header_have, SF_FRAME_HEADER - s->header_have, 0);
    if (got <= 0)
      return got;
    s->header_have = (uint8_t)(s->header_have + got);
  }
  enum sf_damage damage = header_damage(s, s->header);
  if (damage)
    return broken(descriptor, s, damage);
  uint32_t size = word(s->header);
  if (!s->hold)
    s->hold = map(SF_PAYLOAD_MAX);
  int fits = size <= length;
  while (s->hold_have < size - !fits) {
    long got = sf_recv(descriptor, s->hold + s->hold_have, size - !fits - s->hold_have, 0);
    if (got <= 0)
      return got;
    s->hold_have += (uint32_t)got;
  }
  if (s->hold_have < size) {
    long got = sf_recv(descriptor, s->hold + s->hold_have, 1, SF_MSG_PEEK);
    if (got <= 0)
      return got;
  }
  uint8_t *copy = s->hold_have == size ? copied(s->hold, size) : 0;
  if (!payload_is_sound(s, s->header, copy ? copy : s->hold))
    return broken(descriptor, s, SF_DAMAGE_CHECKSUM);
  if (s->hold_have < size) {
    s->hold_have = size;
    s->last_waits = 1;
    return give(descriptor, s, into, length);
  }
  /* All of it has left the socket, which happens only when all of it fits. */
  hand_out(into, s->hold, size, copy);
  s->hold_have = 0;
  s->header_have = 0;
  frame_taken(s);
  return (long)size;
}

static long read_frames(int descriptor, struct stream *s, uint8_t *into, size_t length) {
  if (s->header_have || s->last_waits)
    return read_held(descriptor, s, into, length);
  uint8_t header[SF_FRAME_HEADER];
  struct sf_iovec iov[2] = {{header, sizeof header}, {into, length}};
  struct sf_msghdr message = {.iov = iov, .iov_count = 2};
  long got = sf_call6(SF_SYS_RECVMSG, descriptor, (long)&message, 0, 0, 0, 0);
  if (got <= 0)
    return got;
  size_t given = 0, at = 0, end = got > SF_FRAME_HEADER ? (size_t)got - SF_FRAME_HEADER : 0;
  size_t header_have = got < SF_FRAME_HEADER ? (size_t)got : SF_FRAME_HEADER;
  /* `header` is that of the frame whose payload starts at `at`; into[at, end) has not been looked at. */
  while (header_have == SF_FRAME_HEADER) {
    enum sf_damage damage = header_damage(s, header);
    if (damage)
      return broken(descriptor, s, damage), (long)given;
    uint32_t size = word(header);
    if (end - at < size)
      break;
    /* The copy is checked, so that what is wrong in the buffer, now or later, differs from it. */
    uint8_t *copy = copied(into + at, size);
    if (!payload_is_sound(s, header, copy ? copy : into + at))
      return broken(descriptor, s, SF_DAMAGE_CHECKSUM), (long)given;
    hand_out(into + given, into + at, size, copy);
    frame_taken(s);
    given += size;
    at += size;
    header_have = end - at < SF_FRAME_HEADER ? end - at : SF_FRAME_HEADER;
    memcpy(header, into + at, header_have);
    at += header_have;
  }
  if (header_have) {
    memcpy(s->header, header, header_have);
    s->header_have = (uint8_t)header_have;
    if (end > at) {
      if (!s->hold)
        s->hold = map(SF_PAYLOAD_MAX);
      memcpy(s->hold, into + at, end - at);
      s->hold_have = (uint32_t)(end - at);
    }
  }
  return given ? (long)given : -SF_EAGAIN;
}

static long read_plain(int descriptor, void *into, size_t length) {
  long got = sf_call6(0, descriptor, (long)into, (long)length, 0, 0, 0);
  if (sf_received_unknown && got > 0)
    sf_received_unknown(into, (size_t)got);
  return got;
}

long sf_stream_read(int descriptor, void *into, size_t length) {
  struct stream *s = stream_of(descriptor);
  if (!s || s->state == NONE || s->state == PLAIN)
    return read_plain(descriptor, into, length);
  long result;
  if (s->state == ASKABLE && !negotiate(descriptor, s, &result))
    return result;
  switch (s->state) {
  case PLAIN:
    return read_plain(descriptor, into, length);
  case BROKEN:
    return 0;
  default:
    return length ? read_frames(descriptor, s, into, length) : 0;
  }
}

/* The parts of what goes out in one call: enough that a reply of memcached (3 parts) and a whole run of pipelined ones
   go at once; more is sent by the next call, as after any partial write. */
#define PARTS_MAX 192
#define FRAMES_MAX 32

struct outgoing {
  struct sf_iovec parts[PARTS_MAX];
  size_t part_count;
  uint8_t headers[FRAMES_MAX][SF_FRAME_HEADER];
  uint32_t lengths[FRAMES_MAX];
  uint32_t checksums[FRAMES_MAX]; /* of the payloads */
  size_t frame_count;
};

/* A place in the program's list of buffers. */
struct cursor {
  const struct sf_iovec *at, *end;
  size_t done;
};

/* Takes up to `length` bytes from the program's buffers as parts; the checksum is continued when asked for. */
static uint32_t take(struct cursor *c, uint32_t length, struct outgoing *out, uint32_t *crc) {
  uint32_t taken = 0;
  while (c->at < c->end && taken < length && out->part_count < PARTS_MAX) {
    size_t left = c->at->length - c->done;
    if (!left) {
      c->at++;
      c->done = 0;
      continue;
    }
    size_t part = left < length - taken ? left : length - taken;
    uint8_t *base = (uint8_t *)c->at->base + c->done;
    if (crc)
      *crc = sf_envelope_crc32c(*crc, base, part);
    out->parts[out->part_count++] = (struct sf_iovec){base, part};
    c->done += part;
    taken += (uint32_t)part;
  }
  return taken;
}

/* Adds one new frame, whose header will be at `headers`; 0 when there is nothing left or no room. The second time the payload's
   checksum is the first's: a wrong one is seen by the client, as are bytes that change afterwards. */
static int add_frame(const struct stream *s, struct cursor *c, struct outgoing *out, uint8_t (*headers)[SF_FRAME_HEADER],
                     const struct outgoing *first) {
  /* Its header's part and one for the payload at least. */
  if (out->frame_count == FRAMES_MAX || out->part_count + 2 > PARTS_MAX)
    return 0;
  size_t header_part = out->part_count++;
  uint32_t crc = 0, length = take(c, SF_PAYLOAD_MAX, out, first ? 0 : &crc);
  if (!length) {
    out->part_count = header_part;
    return 0;
  }
  if (first)
    crc = first->checksums[out->frame_count];
  out->checksums[out->frame_count] = crc;
  uint32_t sequence = s->sent + (uint32_t)out->frame_count;
  uint32_t words[4] = {length, ~length, sequence, seal(crc, ~s->nonce, sequence, length)};
  memcpy(out->headers[out->frame_count], words, sizeof words);
  out->parts[header_part] = (struct sf_iovec){headers[out->frame_count], SF_FRAME_HEADER};
  out->lengths[out->frame_count++] = length;
  return 1;
}

/* All that goes out in one call. A function of its own, so that calling it twice is computing twice. */
static __attribute__((noinline)) void make(struct stream *s, const struct sf_msghdr *message, struct outgoing *out,
                                           uint8_t (*headers)[SF_FRAME_HEADER], const struct outgoing *first) {
  out->part_count = out->frame_count = 0;
  struct cursor c = {message->iov, message->iov + message->iov_count, 0};
  if (s->out_left_header)
    out->parts[out->part_count++] = (struct sf_iovec){s->out_header + SF_FRAME_HEADER - s->out_left_header, s->out_left_header};
  int whole = take(&c, s->out_left, out, 0) == s->out_left;
  while (whole && add_frame(s, &c, out, headers, first)) {
  }
}

static int same(const struct outgoing *a, const struct outgoing *b) {
  return a->part_count == b->part_count && a->frame_count == b->frame_count &&
         !memcmp(a->parts, b->parts, a->part_count * sizeof a->parts[0]) &&
         !memcmp(a->headers, b->headers, a->frame_count * sizeof a->headers[0]) &&
         !memcmp(a->lengths, b->lengths, a->frame_count * sizeof a->lengths[0]);
}

/* Accounts for `put` bytes that the kernel has taken; returns how many of them are the program's. */
static __attribute__((noinline)) long account(struct stream *s, const struct outgoing *out, size_t put) {
  size_t part = put < s->out_left_header ? put : s->out_left_header;
  s->out_left_header = (uint8_t)(s->out_left_header - part);
  put -= part;
  long own = 0;
  part = put < s->out_left ? put : s->out_left;
  s->out_left -= (uint32_t)part;
  own += (long)part;
  put -= part;
  for (size_t i = 0; i < out->frame_count && put; i++) {
    size_t head = put < SF_FRAME_HEADER ? put : SF_FRAME_HEADER;
    put -= head;
    size_t body = put < out->lengths[i] ? put : out->lengths[i];
    put -= body;
    own += (long)body;
    s->sent++;
    /* Zero for all but the last. */
    memcpy(s->out_header, out->headers[i], SF_FRAME_HEADER);
    s->out_left_header = (uint8_t)(SF_FRAME_HEADER - head);
    s->out_left = out->lengths[i] - (uint32_t)body;
  }
  return own;
}

/* Without frames: what a handler has sent is compared, and the client gets it as it is. */
static long send_plain(int descriptor, const struct sf_msghdr *message, int flags) {
  if (sf_outputs_leave)
    sf_outputs_leave(message->iov, message->iov_count, (size_t)-1);
  long put = sf_call6(SF_SYS_SENDMSG, descriptor, (long)message, flags, 0, 0, 0);
  if (sf_outputs_left && put > 0)
    sf_outputs_left(message->iov, message->iov_count, (size_t)put);
  return put;
}

static const char accounts_differ[] = "the envelope accounted for what it sent twice, and the results differ: a fault\n";

long sf_stream_sendmsg(int descriptor, const struct sf_msghdr *message, int flags) {
  if (sf_leaves)
    sf_leaves();
  struct stream *s = stream_of(descriptor);
  if (!s || s->state == NONE)
    return sf_call6(SF_SYS_SENDMSG, descriptor, (long)message, flags, 0, 0, 0);
  if (s->state != FRAMED && s->state != BROKEN)
    return send_plain(descriptor, message, flags);
  /* EPIPE: nothing may follow what was damaged. */
  if (s->state == BROKEN)
    return -32;
  struct outgoing out, again;
  make(s, message, &out, out.headers, 0);
  make(s, message, &again, out.headers, &out);
  if (!same(&out, &again))
    sf_mismatch("the envelope made frames twice, and they differ: a fault\n");
  if (!out.part_count)
    return 0;
  if (sf_outputs_leave) {
    /* After the checksums of the frames: bytes that change before this line are seen here, later ones by the client. */
    size_t bytes = s->out_left;
    for (size_t i = 0; i < out.frame_count; i++)
      bytes += out.lengths[i];
    sf_outputs_leave(message->iov, message->iov_count, bytes);
  }
  struct sf_msghdr sent = {.iov = out.parts, .iov_count = out.part_count};
  long put = sf_call6(SF_SYS_SENDMSG, descriptor, (long)&sent, flags, 0, 0, 0);
  if (put <= 0)
    return put;
  struct stream one = *s, two = *s;
  long own = account(&one, &out, (size_t)put);
  volatile long own_again = account(&two, &again, (size_t)put);
  if (own != own_again || memcmp(&one, &two, sizeof one))
    sf_mismatch(accounts_differ);
  __atomic_fetch_add(&sf_envelope_counts.sealed, one.sent - s->sent, __ATOMIC_RELAXED);
  *s = one;
  if (sf_outputs_left && own > 0)
    sf_outputs_left(message->iov, message->iov_count, (size_t)own);
  /* The program goes on behind so many bytes: with a smaller number it would send some of them twice. */
  if (own != own_again)
    sf_mismatch(accounts_differ);
  /* Only header bytes went: the program has made no progress that it could be told of. */
  return own ? own : -SF_EAGAIN;
}
