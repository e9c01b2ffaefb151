/*
 * The envelope of a DNS message: see docs/reference/envelope.md. A query that carries the option is checked and loses it; the
 * reply to it, known by descriptor, peer and identifier, gets it back as its last bytes.
 *
 * Queries wait in a table that a later one may overwrite; the reply to an overwritten one leaves plain, and its client,
 * which asked for the envelope, asks again. One thread at a time.
 *
 * Not covered: messages signed as a whole (TSIG), which must end with their signature: they stay as they are.
 */
#include "envelope.h"
#include "system.h"

/* The same numbers stand in crates/envelope/src/dns.rs. */
#define OPTION 65319
#define OPTION_BYTES 12
#define OPT_BYTES 11
#define TYPE_OPT 41
#define TYPE_SIG 24
#define TYPE_TSIG 250
#define HEADER 12
_Static_assert(SF_DNS_ROOM == OPT_BYTES + OPTION_BYTES, "what sealing can add");

/* Queries that a forwarder may have under way: dnsmasq allows 150 (--dns-forward-max); eight times that keeps two of
   them from meeting in one place most of the time. */
#define WAITING_MAX 1200
#define PEER_BYTES 28 /* struct sockaddr_in6 */

struct waiting {
  uint32_t serial;
  int32_t descriptor;
  uint16_t identifier, size;
  uint8_t used, peer_length, peer[PEER_BYTES];
};
static struct waiting waiting[WAITING_MAX];

static uint32_t be16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }
static uint32_t be32(const uint8_t *at) { return be16(at) << 16 | be16(at + 2); }
static void put16(uint8_t *at, uint32_t value) { at[0] = (uint8_t)(value >> 8), at[1] = (uint8_t)value; }
static void put32(uint8_t *at, uint32_t value) { put16(at, value >> 16), put16(at + 2, value); }

/* Where a name ends; 0 when it is not one. */
static size_t skip_name(const uint8_t *message, size_t length, size_t at) {
  while (at < length) {
    uint8_t label = message[at];
    if (!label)
      return at + 1;
    if (label >= 192)
      return at + 2;
    if (label > 63)
      return 0;
    at += 1 + (size_t)label;
  }
  return 0;
}

struct walk {
  size_t opt, opt_end; /* the OPT record, 0 when there is none */
  size_t option;       /* our option in it, 0 when there is none */
  uint32_t last_type;
};

/* Walks over all records; 0 when the message is not well formed or has bytes behind the last one. */
static int walk(const uint8_t *message, size_t length, struct walk *found) {
  memset(found, 0, sizeof *found);
  if (length < HEADER)
    return 0;
  size_t at = HEADER;
  for (uint32_t i = be16(message + 4); i; i--) {
    at = skip_name(message, length, at);
    if (!at || at + 4 > length)
      return 0;
    at += 4;
  }
  for (uint32_t i = be16(message + 6) + be16(message + 8) + be16(message + 10); i; i--) {
    size_t start = at, name_end = skip_name(message, length, at);
    if (!name_end || name_end + 10 > length)
      return 0;
    size_t data = name_end + 10;
    at = data + be16(message + name_end + 8);
    if (at > length)
      return 0;
    found->last_type = be16(message + name_end);
    if (found->last_type != TYPE_OPT || name_end != start + 1)
      continue;
    found->opt = start, found->opt_end = at, found->option = 0;
    for (size_t option = data; option < at; option += 4 + be16(message + option + 2)) {
      if (option + 4 > at || option + 4 + be16(message + option + 2) > at)
        return 0;
      if (be16(message + option) == OPTION)
        found->option = option;
    }
  }
  return at == length;
}

static struct waiting *place(int descriptor, uint32_t identifier, const void *peer, size_t peer_length) {
  uint32_t hash = sf_envelope_crc32c((uint32_t)descriptor << 16 ^ identifier, peer, peer_length);
  return &waiting[hash % WAITING_MAX];
}

long sf_dns_received(int descriptor, void *bytes, long received, const void *peer, size_t peer_length) {
  uint8_t *message = bytes;
  struct walk found;
  if (received < 0)
    return received;
  size_t length = (size_t)received;
  /* Replies of other servers pass as they are. */
  if (length < HEADER || message[2] & 0x80 || peer_length > PEER_BYTES)
    return received;
  if (!walk(message, length, &found) || !found.option)
    return received;
  int last = found.opt_end == length && found.option + OPTION_BYTES == length && be16(message + found.option + 2) == 8;
  if (!last || sf_envelope_crc32c(0, message, length - 4) != be32(message + length - 4)) {
    __atomic_fetch_add(&sf_envelope_counts.damaged, 1, __ATOMIC_RELAXED);
    sf_envelope_dropped(descriptor, last ? SF_DAMAGE_CHECKSUM : SF_DAMAGE_MALFORMED);
    return -SF_EAGAIN;
  }
  __atomic_fetch_add(&sf_envelope_counts.opened, 1, __ATOMIC_RELAXED);
  struct waiting *w = place(descriptor, be16(message), peer, peer_length);
  uint32_t size = be16(message + found.opt + 3);
  *w = (struct waiting){.serial = be32(message + length - 8), .descriptor = descriptor, .used = 1};
  w->identifier = (uint16_t)be16(message), w->size = (uint16_t)size, w->peer_length = (uint8_t)peer_length;
  memcpy(w->peer, peer, peer_length);
  put16(message + found.opt + 9, be16(message + found.opt + 9) - OPTION_BYTES);
  /* The server must leave room for what is added to its reply; less than 512 counts as 512 (RFC 6891, 6.2.3). */
  if (size >= 512 + SF_DNS_ROOM)
    put16(message + found.opt + 3, size - SF_DNS_ROOM);
  return received - OPTION_BYTES;
}

size_t sf_dns_sending(int descriptor, void *bytes, size_t length, const void *peer, size_t peer_length) {
  uint8_t *message = bytes;
  struct walk found;
  if (length < HEADER || !(message[2] & 0x80) || peer_length > PEER_BYTES)
    return length;
  struct waiting *w = place(descriptor, be16(message), peer, peer_length);
  if (!w->used || w->descriptor != descriptor || w->identifier != be16(message) || w->peer_length != peer_length ||
      memcmp(w->peer, peer, peer_length))
    return length;
  w->used = 0;
  if (!walk(message, length, &found) || found.last_type == TYPE_TSIG || found.last_type == TYPE_SIG)
    return length;
  if (found.opt && found.opt_end != length)
    return length;
  if (!found.opt) {
    if (be16(message + 10) == 0xffff)
      return length;
    found.opt = length;
    memset(message + length, 0, OPT_BYTES);
    put16(message + length + 1, TYPE_OPT);
    put16(message + length + 3, w->size);
    put16(message + 10, be16(message + 10) + 1);
    length += OPT_BYTES;
  }
  put16(message + found.opt + 9, be16(message + found.opt + 9) + OPTION_BYTES);
  put16(message + length, OPTION);
  put16(message + length + 2, 8);
  put32(message + length + 4, w->serial);
  put32(message + length + 8, sf_envelope_crc32c(0, message, length + 8));
  __atomic_fetch_add(&sf_envelope_counts.sealed, 1, __ATOMIC_RELAXED);
  return length + OPTION_BYTES;
}
