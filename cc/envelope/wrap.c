/*
 * Puts the envelope beneath a program that is linked with it, its source untouched:
 *
 *     -Wl,--wrap=read,--wrap=write,--wrap=send,--wrap=sendmsg,--wrap=recvmsg,--wrap=recvfrom,--wrap=accept,--wrap=accept4,--wrap=close
 *
 * All of them, whether or not the program calls each: the linker defines __real_X for wrapped names only.
 *
 * Only the calls of the program's own objects are led here; its libraries go on as they did. A datagram's peer is in
 * the message's name, so streams and datagrams tell themselves apart.
 */
#include "envelope.h"
#include "system.h"

extern int *__errno_location(void);

extern int __real_accept(int, void *, void *);
extern int __real_accept4(int, void *, void *, int);
extern int __real_close(int);
extern long __real_read(int, void *, size_t);
extern long __real_write(int, const void *, size_t);
extern long __real_send(int, const void *, size_t, int);
extern long __real_sendmsg(int, const struct sf_msghdr *, int);
extern long __real_recvmsg(int, struct sf_msghdr *, int);
extern long __real_recvfrom(int, void *, size_t, int, void *, void *);

/* Asked for by the hardening runtime: without this, nothing would look at what it keeps. */
const int sf_envelope_linked = 1;

static long result(long value) {
  if (value >= 0)
    return value;
  *__errno_location() = (int)-value;
  return -1;
}

int __wrap_accept(int listener, void *peer, void *length) {
  int descriptor = __real_accept(listener, peer, length);
  if (descriptor >= 0)
    sf_stream_accepted(descriptor);
  return descriptor;
}

int __wrap_accept4(int listener, void *peer, void *length, int flags) {
  int descriptor = __real_accept4(listener, peer, length, flags);
  if (descriptor >= 0)
    sf_stream_accepted(descriptor);
  return descriptor;
}

int __wrap_close(int descriptor) {
  /* Before, because the number may be given out again at once. */
  sf_stream_closed(descriptor);
  return __real_close(descriptor);
}

long __wrap_read(int descriptor, void *into, size_t length) { return result(sf_stream_read(descriptor, into, length)); }

long __wrap_send(int descriptor, const void *bytes, size_t length, int flags) {
  if (!sf_stream_is_framed(descriptor))
    return __real_send(descriptor, bytes, length, flags);
  struct sf_iovec iov = {(void *)bytes, length};
  struct sf_msghdr message = {.iov = &iov, .iov_count = 1};
  return result(sf_stream_sendmsg(descriptor, &message, flags));
}

long __wrap_write(int descriptor, const void *bytes, size_t length) {
  if (!sf_stream_is_framed(descriptor))
    return __real_write(descriptor, bytes, length);
  return __wrap_send(descriptor, bytes, length, 0);
}

long __wrap_recvmsg(int descriptor, struct sf_msghdr *message, int flags) {
  long got = __real_recvmsg(descriptor, message, flags);
  /* MSG_PEEK would check and strip it twice. A message that was cut short (MSG_TRUNC) is the program's to refuse. */
  if (got <= 0 || !message->name || message->iov_count != 1 || flags & SF_MSG_PEEK || message->flags & 0x20)
    return got;
  return result(sf_dns_received(descriptor, message->iov->base, got, message->name, message->name_length));
}

/* Plain datagrams: a handler may take what came, whose checksum nobody has sent. */
long __wrap_recvfrom(int descriptor, void *into, size_t length, int flags, void *peer, void *peer_length) {
  long got = __real_recvfrom(descriptor, into, length, flags, peer, peer_length);
  if (sf_received_unknown && got > 0 && !(flags & SF_MSG_PEEK))
    sf_received_unknown(into, (size_t)got < length ? (size_t)got : length);
  return got;
}

long __wrap_sendmsg(int descriptor, const struct sf_msghdr *message, int flags) {
  if (!message->name)
    return result(sf_stream_sendmsg(descriptor, message, flags));
  /* The program's own buffer may have no room behind the message, and must not change. */
  uint8_t copy[4096 + SF_DNS_ROOM];
  if (message->iov_count != 1 || message->iov->length > 4096)
    return __real_sendmsg(descriptor, message, flags);
  size_t length = message->iov->length;
  memcpy(copy, message->iov->base, length);
  size_t sealed = sf_dns_sending(descriptor, copy, length, message->name, message->name_length);
  if (sealed == length)
    return __real_sendmsg(descriptor, message, flags);
  struct sf_iovec iov = {copy, sealed};
  struct sf_msghdr sent = *message;
  sent.iov = &iov;
  sent.iov_count = 1;
  long put = __real_sendmsg(descriptor, &sent, flags);
  return put == (long)sealed ? (long)length : put;
}

__attribute__((weak)) void sf_envelope_dropped(int descriptor, enum sf_damage why) {
  (void)descriptor;
  static const char *const reasons[] = {
      "?\n",
      "the length of a frame was damaged; the stream is closed\n",
      "a frame came out of sequence; the stream is closed\n",
      "the checksum of a message was wrong; it is dropped\n",
      "the envelope of a message was damaged; it is dropped\n",
  };
  sf_say("steadfast: envelope: ");
  sf_say(reasons[why < sizeof reasons / sizeof *reasons ? why : 0]);
}
