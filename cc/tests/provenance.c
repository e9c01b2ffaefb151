/* Messages outside handlers: what a stream has brought against what a handler takes in, and what a handler has sent against
   what leaves. This program does what cc/envelope does with a socket, to memory: `feed` is its receiving side,
   `leave` its sending one.

   provenance MODE: 0 runs to its end and prints a sum. Each of the others strikes once, in event 40, where a fault would be
   followed by both runs and by the checksum of what is sent.

   The policy (provenance.policy) names what this source does not say. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct part {
  const char *base;
  size_t length;
};
struct reply {
  struct part parts[8];
  int count;
  unsigned char chunked;
  char text[64];
};
struct connection {
  char *buffer, *at;
  size_t have, size;
  char *value;
  struct reply reply;
};

/* As in cc/envelope/system.h. */
extern unsigned char *sf_received_room(size_t) __attribute__((weak));
extern void sf_received(const void *, size_t, const unsigned char *) __attribute__((weak));
extern void sf_received_unknown(const void *, size_t) __attribute__((weak));
extern void sf_received_none(void) __attribute__((weak));
extern void sf_outputs_leave(const struct part *, size_t, size_t) __attribute__((weak));
extern void sf_outputs_left(const struct part *, size_t, size_t) __attribute__((weak));
const int sf_envelope_linked = 1;

static int mode, event;
static unsigned sum;
static char chunk[200], disk[100];

void add_part(struct reply *r, const char *bytes, int length) {
  r->parts[r->count++] = (struct part){bytes, (size_t)length};
}

/* What comes is not there yet: as many bytes will leave as are said here. */
void add_later(struct reply *r) { add_part(r, "", 100); }

void say(struct connection *c, const char *text) {
  c->reply.count = 0;
  memcpy(c->reply.text, text, strlen(text));
  add_part(&c->reply, c->reply.text, (int)strlen(text));
}

static void answer(struct connection *c, const char *line) {
  struct reply *r = &c->reply;
  c->value[atoi(line + 1) % 70]++;
  say(c, "a longer answer, which is thought better of\r\n");
  say(c, line[0] == 'q' ? "quiet\r\n" : "HD\r\n");
  if (line[0] == 'c')
    r->chunked = (unsigned char)r->count, add_part(r, chunk, 150);
  else if (line[0] == 'l')
    add_later(r);
  else
    add_part(r, c->value, 70);
  r->text[0] ^= 32; /* the checksum is one of what the handler leaves */
}

void handle(struct connection *c, char *line) { answer(c, line); }

/* What nobody has sent. */
void own(struct connection *c) { answer(c, "q1"); }

void store(struct connection *c, char *value, int length) {
  memcpy(c->value, value, (size_t)length);
  say(c, "STORED\r\n");
}

static void leave(struct part *parts, size_t count, size_t most) {
  while (count) {
    if (sf_outputs_leave)
      sf_outputs_leave(parts, count, (size_t)-1);
    size_t left = 0;
    for (size_t i = 0; i < count && left < most; i++) {
      size_t n = parts[i].length < most - left ? parts[i].length : most - left;
      for (size_t k = 0; k < n; k++)
        sum = sum * 31 + (unsigned char)parts[i].base[k];
      left += n;
    }
    if (sf_outputs_left)
      sf_outputs_left(parts, count, left);
    while (count && left >= parts->length)
      left -= parts->length, parts++, count--;
    if (count)
      parts->base += left, parts->length -= left;
  }
}

static void transmit(struct connection *c, size_t most) {
  struct part parts[8];
  memcpy(parts, c->reply.parts, sizeof parts);
  size_t count = (size_t)c->reply.count;
  for (size_t i = 0; i < count; i++)
    if (parts[i].length == 100)
      parts[i].base = disk;
  if (event == 40) {
    if (mode == 3)
      c->reply.text[1] ^= 1;
    if (mode == 4)
      c->value[20] ^= 1;
    if (mode == 5)
      parts[0].length += 4;
    if (mode == 6)
      parts[1].base += 8;
    if (mode == 7)
      parts[1].base = chunk;
  }
  if (c->reply.chunked) /* in pieces that nobody has announced one by one */
    leave(&(struct part){chunk, 90}, 1, 1000), leave(&(struct part){chunk + 100, 60}, 1, most), count--;
  leave(parts, count, most);
  memset(&c->reply, 0, offsetof(struct reply, text));
}

/* Bytes come to the buffer, checked. */
static void feed(struct connection *c, const char *bytes, size_t length, int is_known) {
  if (c->at != c->buffer)
    memmove(c->buffer, c->at, c->have), c->at = c->buffer;
  if (c->have + length > c->size)
    c->at = c->buffer = realloc(c->buffer, c->size = 4 * (c->have + length));
  char *to = c->buffer + c->have;
  unsigned char *copy = is_known && sf_received_room ? sf_received_room(length) : NULL;
  if (copy)
    memcpy(copy, bytes, length);
  memcpy(to, bytes, length);
  if (copy)
    sf_received(to, length, copy);
  else if (sf_received_unknown)
    sf_received_unknown(to, length);
  c->have += length;
}

static int ask(struct connection *c) {
  char *end = memchr(c->at, '\n', c->have);
  if (!end)
    return 0;
  size_t length = (size_t)(end + 1 - c->at);
  if (end - c->at > 1 && end[-1] == '\r' && !(event == 40 && mode == 13))
    end--;
  *end = 0;
  if (event == 40 && mode == 1)
    c->at[1] ^= 4, mode = 0;
  if (event > 40 && mode == 14)
    c->at[0] ^= 32;
  if (event == 40 && mode == 2)
    c->at[1] = 0;
  handle(c, c->at);
  if (event == 40 && mode == 11) /* the count of what is there: the line comes again */
    return mode = 0, 1;
  c->at += length, c->have -= length;
  return 1;
}

/* A value moves from the buffer to where it is handled. */
static void take_value(struct connection *c, size_t length) {
  static char item[1000];
  memcpy(item, c->at, length);
  c->at += length, c->have -= length;
  if (event == 40 && mode == 8)
    item[30] ^= 1, mode = 0;
  store(c, item, (int)length + (event == 40 && mode == 12));
}

int main(int argc, char **argv) {
  mode = argc > 1 ? atoi(argv[1]) : 0;
  struct connection c = {0};
  char *values = c.value = calloc(1, 1600);
  c.buffer = c.at = malloc(c.size = 64);
  char text[400];
  for (event = 0; event < 3000; event++) {
    const char *kind = event % 50 == 7 ? "c" : event % 50 == 8 ? "l" : event % 50 == 9 ? "q" : "g";
    /* Two lines in one piece, a line in two pieces, and now and then bytes that nothing is known about. */
    int n = snprintf(text, sizeof text, "%s%d\r\n%s%d%s\n", kind, event, kind, event + 1, event % 3 ? "\r" : "");
    size_t cut = (size_t)(event * 7 % n);
    feed(&c, text, cut, event % 11);
    feed(&c, text + cut, (size_t)n - cut, 1);
    while (ask(&c))
      if (kind[0] != 'q')
        transmit(&c, event % 3 ? 1000 : 23);
    char value[80];
    memset(value, 'a' + event % 26, sizeof value);
    feed(&c, value, 40, 1);
    feed(&c, value + 40, 40, 1);
    take_value(&c, 75);
    if (event == 40 && mode == 9)
      c.reply.text[2] ^= 1;
    transmit(&c, 1000);
    c.at += 5, c.have -= 5; /* passed over */
    say(&c, "from outside\r\n");
    if (event == 40 && mode == 10)
      c.reply.text[2] ^= 1;
    transmit(&c, 5);
    if (event % 100 == 99) { /* another connection, in the same memory */
      sf_received_none ? sf_received_none() : (void)0;
      for (int i = 0; i < 1500; i++) { /* replies that never leave */
        c.value = values + i;
        own(&c);
        memset(&c.reply, 0, offsetof(struct reply, text));
      }
      c.value = values;
    }
  }
  printf("%u\n", sum);
}
