/*
 * The message envelope, the server's end: what docs/reference/envelope.md asks of it, for servers whose source stays untouched.
 *
 * A connection starts in plain bytes. A client that sends the asking line as its first bytes gets an answer, and from
 * then on both directions are frames: length, its inverse, sequence, CRC32C, payload. The server underneath goes on
 * reading and writing plain bytes through the functions below, which stand in for read(2), sendmsg(2) and so on
 * (wrap.c puts them there when the program is linked). A datagram of DNS carries the envelope as an EDNS option.
 *
 * Invariants
 *  1. No byte of a frame is handed out before the whole frame has been checked; a damaged frame closes the stream.
 *  2. A descriptor that was not handed to sf_stream_accepted, or whose client never asked, costs one comparison.
 *  3. When bytes wait to be handed out, the socket is readable: the last byte of a frame leaves the socket with the
 *     last byte of its payload. A server on level-triggered poll or epoll therefore needs no change.
 *  4. Nothing here allocates from the program's heap or calls its C library: memory is mapped, calls are made raw.
 *
 * The other end is crates/envelope/src, with a checksum of its own: this one uses the processor's
 * instruction, that one tables.
 *
 * Not covered: edge-triggered servers, descriptors passed between processes, reads of one connection by two threads at
 * once, DNS over TCP. The checksum of a frame is computed over the bytes as they are handed to sendmsg. In a hardened
 * program whose policy names outputs they are compared with the checksums of the handlers' second runs then; in others
 * what was damaged between the handler's end and there is not seen (edge).
 */
#ifndef STEADFAST_ENVELOPE_H
#define STEADFAST_ENVELOPE_H

#include <stddef.h>
#include <stdint.h>

#define SF_FRAME_HEADER 16
/* The same number stands in crates/envelope/src/stream.rs. */
#define SF_PAYLOAD_MAX 16384
#define SF_HELLO_BYTES 39

struct sf_iovec {
  void *base;
  size_t length;
};

/* Layout of struct msghdr on Linux, 64 bits. */
struct sf_msghdr {
  void *name;
  uint32_t name_length;
  struct sf_iovec *iov;
  size_t iov_count;
  void *control;
  size_t control_length;
  int32_t flags;
};

/* CRC32C (Castagnoli): start with 0, go on with the result. */
uint32_t sf_envelope_crc32c(uint32_t so_far, const void *bytes, size_t length);

/* Streams. All return what the system call would: a count, or a negative error number. */
void sf_stream_accepted(int descriptor);
void sf_stream_closed(int descriptor);
/* 1 when writes must go through sf_stream_sendmsg. */
int sf_stream_is_framed(int descriptor);
long sf_stream_read(int descriptor, void *into, size_t length);
long sf_stream_sendmsg(int descriptor, const struct sf_msghdr *message, int flags);

/* Datagrams: after a receive, before a send. */
long sf_dns_received(int descriptor, void *message, long length, const void *peer, size_t peer_length);
/* Returns the new length; `message` has room for SF_DNS_ROOM more bytes. */
#define SF_DNS_ROOM 23
size_t sf_dns_sending(int descriptor, void *message, size_t length, const void *peer, size_t peer_length);

/* What was seen, for whoever asks. */
struct sf_envelope_counts {
  uint64_t agreed;      /* connections that asked for the envelope */
  uint64_t opened;      /* frames and datagrams accepted */
  uint64_t sealed;      /* frames and datagrams sent */
  uint64_t damaged;     /* dropped: stream closed, datagram ignored */
};
extern struct sf_envelope_counts sf_envelope_counts;

/* Called for each message dropped, async-signal-safe. The default writes one line to standard error. */
enum sf_damage { SF_DAMAGE_LENGTH = 1, SF_DAMAGE_SEQUENCE, SF_DAMAGE_CHECKSUM, SF_DAMAGE_MALFORMED };
void sf_envelope_dropped(int descriptor, enum sf_damage why);

#endif
