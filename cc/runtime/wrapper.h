/* What the wrappers of libraries share (libc.c, files.c, events.c, locks.c, strings.c). */
#ifndef STEADFAST_WRAPPER_H
#define STEADFAST_WRAPPER_H

#include "runtime.h"

#include <errno.h>
#include <sys/types.h>

#define FIRST (__sf_tls.phase == SF_E1)
/* Wrappers are only reached from hardened code; a pointer to one may have escaped. */
#define INSIDE struct sf_context *c = sf_inside("a wrapper of the C library was called outside a handler")

/* A write of a wrapper into the program's memory. */
#define LOGGED(at, length, ...)  \
  do {                           \
    __sf_log((at), (length));    \
    __VA_ARGS__;                 \
    __sf_logged((at), (length)); \
  } while (0)

/* Input: bytes and a result, read once. The memory is logged, errno is the first run's. */
static inline ssize_t sf_again(struct sf_record *r, void *to) {
  if (r->length)
    __sf_memcpy(to, sf_data(r), r->length);
  if ((int64_t)r->result < 0)
    errno = (int)-(int64_t)r->result;
  return (int64_t)r->result < 0 ? -1 : (ssize_t)r->result;
}

#define READING(NAME, ARGUMENTS, TO, ROOM, RESULT)                                                                         \
  INSIDE;                                                                                                                  \
  uint64_t mix = (ARGUMENTS);                                                                                              \
  struct sf_record *r;                                                                                                     \
  if (FIRST && (r = sf_kept(c, NAME, mix)) != NULL) {                                                                      \
    /* a retry */                                                                                                          \
  } else if (FIRST) {                                                                                                      \
    size_t at = c->queue.used;                                                                                             \
    r = sf_record(c, NAME, mix, (ROOM));                                                                                   \
    void *into = sf_data(r);                                                                                               \
    ssize_t got = (RESULT), again = got;                                                                                   \
    sf_opaque(again);                                                                                                      \
    r->result = (uint64_t)(got < 0 ? -(int64_t)errno : got);                                                               \
    size_t bytes = got < 0 ? 0 : (size_t)got < (ROOM) ? (size_t)got : (ROOM); /* with MSG_TRUNC it is what there was */    \
    r->length = (uint32_t)bytes;                                                                                           \
    r->once = 1;                                                                                                           \
    if (unlikely(got != again))                                                                                            \
      sf_differ_name("what the kernel gave has changed on its way into the log of", NAME, (uint64_t)got, (uint64_t)again); \
    c->queue.used = at + sizeof *r + ((r->length + 7) & ~7ull);                                                            \
  } else {                                                                                                                 \
    r = sf_replay(c, NAME, mix);                                                                                           \
  }                                                                                                                        \
  return sf_again(r, TO)

/* A fixed-size answer: status, then the bytes. */
static inline int sf_answer(struct sf_record *r, void *to, size_t n) {
  if (to && r->result == 0)
    __sf_memcpy(to, sf_data(r), n);
  if (r->result != 0)
    errno = (int)r->result;
  return r->result == 0 ? 0 : -1;
}

#define ASKING(NAME, ARGUMENTS, TO, N, CALL)       \
  INSIDE;                                          \
  uint64_t mix = (ARGUMENTS);                      \
  struct sf_record *r;                             \
  if (FIRST) {                                     \
    r = sf_record(c, NAME, mix, (N));              \
    void *into = sf_data(r);                       \
    r->result = (CALL) == 0 ? 0 : (uint64_t)errno; \
  } else {                                         \
    r = sf_replay(c, NAME, mix);                   \
  }                                                \
  return sf_answer(r, TO, N)

/* A call with a number for an answer, done once. */
#define CALLING(NAME, ARGUMENTS, CALL)                       \
  INSIDE;                                                    \
  uint64_t mix = (ARGUMENTS);                                \
  struct sf_record *r;                                       \
  if (FIRST && (r = sf_kept(c, NAME, mix)) != NULL) {        \
    /* a retry */                                            \
  } else if (FIRST) {                                        \
    r = sf_record(c, NAME, mix, 0);                          \
    int64_t got = (CALL);                                    \
    r->result = (uint64_t)(got < 0 ? -(int64_t)errno : got); \
    r->once = 1;                                             \
  } else {                                                   \
    r = sf_replay(c, NAME, mix);                             \
  }                                                          \
  int64_t answer = (int64_t)r->result;                       \
  if (answer < 0)                                            \
    errno = (int)-answer;                                    \
  return answer < 0 ? -1 : answer

#endif
