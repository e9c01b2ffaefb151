/*
 * Libraries and protected objects. Code outside handlers calls __sf_s_NAME in place of NAME where the C library writes
 * into memory it is given, or sends it away: objects are looked at before, copies and checksums are renewed after.
 * Memory for protected objects is asked for by the same names in and outside handlers.
 *
 * Invariant: a call whose memory is not protected does what the library does, by the library.
 *
 * Not covered: other calls that write into memory they are given, and libraries that keep a pointer and write later
 * (docs/reference/limits-cc.md).
 */
#define _GNU_SOURCE
#include "state.h"
#include "wrapper.h"

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static inline bool kept(const void *p) { return sf_is_dup((uintptr_t)p) || sf_is_crc((uintptr_t)p); }

static void before(const void *to, size_t n) {
  if (n && kept(to))
    __sf_state_write(to, n);
}
static void after(const void *to, size_t n) {
  if (n && kept(to))
    __sf_state_written(to, n);
}
static void look_outside(const void *from, size_t n) {
  if (n && kept(from))
    __sf_state_read(from, n);
}
static void room_outside(const void *to, size_t n) {
  if (n && kept(to))
    __sf_state_room(to, n);
}

/* A call that writes at most ROOM bytes to TO, of which DID were. FILLS: nobody says how many. */
#define WRITES(TYPE, TO, ROOM, CALL, DID) CALLS(before, TYPE, TO, ROOM, CALL, DID)
#define FILLS(TYPE, TO, ROOM, CALL) CALLS(room_outside, TYPE, TO, ROOM, CALL, ROOM)
#define CALLS(BEFORE, TYPE, TO, ROOM, CALL, DID) \
  BEFORE(TO, ROOM);                              \
  TYPE r = CALL;                                 \
  int kept_errno = errno;                        \
  after(TO, DID);                                \
  errno = kept_errno;                            \
  return r

SF_API void *__sf_s_memcpy(void *to, const void *from, size_t n) {
  look_outside(from, n);
  WRITES(void *, to, n, memcpy(to, from, n), n);
}
SF_API void *__sf_s_memmove(void *to, const void *from, size_t n) {
  look_outside(from, n);
  WRITES(void *, to, n, memmove(to, from, n), n);
}
SF_API void *__sf_s_provenance_move(void *to, const void *from, size_t n) {
  look_outside(from, n);
  WRITES(void *, to, n, __sf_provenance_move(to, from, n), n);
}
SF_API void *__sf_s_memset(void *to, int byte, size_t n) { WRITES(void *, to, n, memset(to, byte, n), n); }
SF_API void *__sf_s_mempcpy(void *to, const void *from, size_t n) { return (char *)__sf_s_memcpy(to, from, n) + n; }
SF_API void *__sf_s_memcpy_chk(void *to, const void *from, size_t n, size_t room) {
  if (n > room)
    abort();
  return __sf_s_memcpy(to, from, n);
}
SF_API void *__sf_s_memmove_chk(void *to, const void *from, size_t n, size_t room) {
  if (n > room)
    abort();
  return __sf_s_memmove(to, from, n);
}
SF_API void *__sf_s_memset_chk(void *to, int byte, size_t n, size_t room) {
  if (n > room)
    abort();
  return __sf_s_memset(to, byte, n);
}
SF_API char *__sf_s_strcpy(char *to, const char *from) { return __sf_s_memcpy(to, from, strlen(from) + 1); }
SF_API char *__sf_s_stpcpy(char *to, const char *from) {
  size_t n = strlen(from);
  return (char *)__sf_s_memcpy(to, from, n + 1) + n;
}
SF_API char *__sf_s_strcpy_chk(char *to, const char *from, size_t room) {
  if (strlen(from) >= room)
    abort();
  return __sf_s_strcpy(to, from);
}
SF_API char *__sf_s_strncpy(char *to, const char *from, size_t n) {
  look_outside(from, strnlen(from, n));
  WRITES(char *, to, n, strncpy(to, from, n), n);
}
SF_API char *__sf_s_strncpy_chk(char *to, const char *from, size_t n, size_t room) {
  if (n > room)
    abort();
  return __sf_s_strncpy(to, from, n);
}
SF_API char *__sf_s_strcat(char *to, const char *from) {
  __sf_s_strcpy(to + strlen(to), from);
  return to;
}
SF_API char *__sf_s_strncat(char *to, const char *from, size_t n) {
  size_t had = strlen(to), more = strnlen(from, n);
  look_outside(to, had);
  __sf_s_memcpy(to + had, from, more);
  __sf_s_memset(to + had + more, 0, 1);
  return to;
}
SF_API char *__sf_s_strcat_chk(char *to, const char *from, size_t room) {
  if (strlen(to) + strlen(from) >= room)
    abort();
  return __sf_s_strcat(to, from);
}

SF_API char *__sf_s_strncat_chk(char *to, const char *from, size_t n, size_t room) {
  if (strlen(to) + strnlen(from, n) >= room)
    abort();
  return __sf_s_strncat(to, from, n);
}

static int format_outside(char *to, size_t room, const char *how, va_list list) {
  if (!kept(to))
    return vsnprintf(to, room, how, list);
  char small[1024];
  int n = vsnprintf(small, sizeof small, how, list);
  if (n < 0 || room == 0)
    return n;
  if ((size_t)n >= sizeof small && room > sizeof small)
    sf_stop("more than 1023 bytes are printed into a protected object outside handlers", "print into a buffer, and copy that");
  size_t length = (size_t)n < room ? (size_t)n : room - 1;
  small[length] = 0;
  __sf_s_memcpy(to, small, length + 1);
  return n;
}
#define PRINTS(NAME, PARAMETERS, ROOM)           \
  SF_API int __sf_s_##NAME PARAMETERS {          \
    va_list list;                                \
    va_start(list, how);                         \
    int n = format_outside(to, ROOM, how, list); \
    va_end(list);                                \
    return n;                                    \
  }
PRINTS(snprintf, (char *to, size_t room, const char *how, ...), room)
PRINTS(sprintf, (char *to, const char *how, ...), SIZE_MAX >> 1)
PRINTS(snprintf_chk, (char *to, size_t room, int flag, size_t size, const char *how, ...), ((void)flag, room <= size ? room : size))
PRINTS(sprintf_chk, (char *to, int flag, size_t size, const char *how, ...), ((void)flag, size < SIZE_MAX >> 1 ? size : SIZE_MAX >> 1))
SF_API int __sf_s_vsnprintf(char *to, size_t room, const char *how, va_list list) { return format_outside(to, room, how, list); }
SF_API int __sf_s_vsnprintf_chk(char *to, size_t room, int flag, size_t size, const char *how, va_list list) {
  (void)flag;
  return format_outside(to, room <= size ? room : size, how, list);
}

/* The end of a word is a byte that is written; the library's own would go through one pointer and not tell where. */
SF_API char *__sf_s_strtok_r(char *s, const char *of, char **rest) {
  if (!s) {
    look_outside(rest, sizeof *rest);
    s = *rest;
  }
  look_outside(s, strlen(s) + 1);
  look_outside(of, strlen(of) + 1);
  s += strspn(s, of);
  char *end = s + strcspn(s, of), *next = *end ? end + 1 : end;
  if (*end)
    __sf_s_memset(end, 0, 1);
  __sf_s_memcpy(rest, &next, sizeof next);
  return s == end ? NULL : s;
}

/* Input. */
#define GOT(r) ((r) > 0 ? (size_t)(r) : 0)
static size_t least_outside(size_t a, size_t b) { return a < b ? a : b; }
SF_API ssize_t __sf_s_read(int fd, void *to, size_t n) { WRITES(ssize_t, to, n, read(fd, to, n), GOT(r)); }
SF_API ssize_t __sf_s_pread(int fd, void *to, size_t n, long at) { WRITES(ssize_t, to, n, pread(fd, to, n, at), GOT(r)); }
SF_API ssize_t __sf_s_recv(int fd, void *to, size_t n, int flags) {
  WRITES(ssize_t, to, n, recv(fd, to, n, flags), least_outside(GOT(r), n)); /* with MSG_TRUNC the result is the length of the message */
}
/* A name and its length: room before the call, the length that it has in truth behind it. */
static size_t room_for_name(const struct sockaddr *a, socklen_t *length) {
  if (!a || !length)
    return 0;
  look_outside(length, sizeof *length);
  before(a, *length);
  before(length, sizeof *length);
  return *length;
}
static void named(bool is, const struct sockaddr *a, socklen_t *length, size_t had) {
  if (!is || !a || !length)
    return;
  after(a, least_outside(had, *length));
  after(length, sizeof *length);
}
#define NAMES(TYPE, CALL)                \
  size_t had = room_for_name(a, length); \
  TYPE r = CALL;                         \
  int kept_errno = errno;                \
  named(r >= 0, a, length, had);         \
  errno = kept_errno;                    \
  return r
SF_API int __sf_s_accept(int fd, struct sockaddr *a, socklen_t *length) { NAMES(int, accept(fd, a, length)); }
SF_API int __sf_s_accept4(int fd, struct sockaddr *a, socklen_t *length, int flags) { NAMES(int, accept4(fd, a, length, flags)); }
SF_API int __sf_s_getsockname(int fd, struct sockaddr *a, socklen_t *length) { NAMES(int, getsockname(fd, a, length)); }
SF_API int __sf_s_getpeername(int fd, struct sockaddr *a, socklen_t *length) { NAMES(int, getpeername(fd, a, length)); }
SF_API ssize_t __sf_s_recvfrom(int fd, void *to, size_t n, int flags, struct sockaddr *a, socklen_t *length) {
  before(to, n);
  size_t had = room_for_name(a, length);
  ssize_t r = recvfrom(fd, to, n, flags, a, length);
  int kept_errno = errno;
  after(to, least_outside(GOT(r), n));
  named(r >= 0, a, length, had);
  errno = kept_errno;
  return r;
}
SF_API size_t __sf_s_fread(void *to, size_t size, size_t n, FILE *file) { FILLS(size_t, to, size *n, fread(to, size, n, file)); }
SF_API char *__sf_s_fgets(char *to, int n, FILE *file) { FILLS(char *, to, (size_t)n, fgets(to, n, file)); }
SF_API int __sf_s_inet_pton(int family, const char *from, void *to) {
  uint8_t bytes[16];
  look_outside(from, strlen(from) + 1);
  int r = inet_pton(family, from, bytes);
  if (r == 1)
    __sf_s_memcpy(to, bytes, family == AF_INET ? 4 : 16);
  return r;
}
static void each(const struct iovec *v, size_t count, void (*what)(const void *, size_t)) {
  for (size_t i = 0; i < count; i++)
    what(v[i].iov_base, v[i].iov_len);
}
static void after_each(const struct iovec *v, size_t count, size_t got) {
  for (size_t i = 0; i < count; i++) {
    size_t n = least_outside(got, v[i].iov_len);
    after(v[i].iov_base, n);
    got -= n;
  }
}
#define READS_EACH(v, count, CALL)                \
  look_outside(v, (size_t)(count) * sizeof *(v)); \
  each(v, (size_t)(count), before);               \
  ssize_t r = CALL;                               \
  int kept_errno = errno;                         \
  after_each(v, (size_t)(count), GOT(r))
SF_API ssize_t __sf_s_readv(int fd, const struct iovec *v, int count) {
  READS_EACH(v, count, readv(fd, v, count));
  errno = kept_errno;
  return r;
}
SF_API ssize_t __sf_s_preadv(int fd, const struct iovec *v, int count, long at) {
  READS_EACH(v, count, preadv(fd, v, count, at));
  errno = kept_errno;
  return r;
}
SF_API ssize_t __sf_s_recvmsg(int fd, struct msghdr *m, int flags) {
  look_outside(m, sizeof *m);
  const struct msghdr had = *m;
  before(had.msg_name, had.msg_namelen);
  before(had.msg_control, had.msg_controllen);
  READS_EACH(m->msg_iov, m->msg_iovlen, recvmsg(fd, m, flags));
  if (r >= 0) {
    if (had.msg_name)
      after(had.msg_name, least_outside(had.msg_namelen, m->msg_namelen));
    after(had.msg_control, least_outside(had.msg_controllen, m->msg_controllen));
    after(m, sizeof *m);
  }
  errno = kept_errno;
  return r;
}

/* Output: what leaves is what was kept. */
SF_API ssize_t __sf_s_write(int fd, const void *from, size_t n) { return look_outside(from, n), write(fd, from, n); }
SF_API ssize_t __sf_s_pwrite(int fd, const void *from, size_t n, long at) { return look_outside(from, n), pwrite(fd, from, n, at); }
SF_API ssize_t __sf_s_send(int fd, const void *from, size_t n, int flags) { return look_outside(from, n), send(fd, from, n, flags); }
SF_API ssize_t __sf_s_sendto(int fd, const void *from, size_t n, int flags, const struct sockaddr *a, socklen_t length) {
  return look_outside(from, n), look_outside(a, length), sendto(fd, from, n, flags, a, length);
}
SF_API ssize_t __sf_s_writev(int fd, const struct iovec *v, int count) {
  look_outside(v, (size_t)count * sizeof *v);
  each(v, (size_t)count, look_outside);
  return writev(fd, v, count);
}
SF_API ssize_t __sf_s_pwritev(int fd, const struct iovec *v, int count, long at) {
  look_outside(v, (size_t)count * sizeof *v);
  each(v, (size_t)count, look_outside);
  return pwritev(fd, v, count, at);
}
SF_API ssize_t __sf_s_sendmsg(int fd, const struct msghdr *m, int flags) {
  look_outside(m, sizeof *m);
  look_outside(m->msg_iov, m->msg_iovlen * sizeof *m->msg_iov);
  each(m->msg_iov, m->msg_iovlen, look_outside);
  look_outside(m->msg_name, m->msg_namelen);
  look_outside(m->msg_control, m->msg_controllen);
  return sendmsg(fd, m, flags);
}
SF_API size_t __sf_s_fwrite(const void *from, size_t size, size_t n, FILE *file) {
  return look_outside(from, size * n), fwrite(from, size, n, file);
}

/* Memory. */

SF_API void __sf_s_free(void *p) { sf_is_heap(p) ? sf_heap_free(p) : free(p); }
SF_API size_t __sf_s_usable(void *p) { return sf_is_heap(p) ? sf_heap_size(p) : malloc_usable_size(p); }
SF_API void *__sf_s_realloc(void *p, size_t n) {
  if (!sf_is_heap(p))
    return realloc(p, n);
  if (n == 0) {
    sf_heap_free(p);
    return NULL;
  }
  size_t had = sf_heap_size(p);
  if (n <= had && n > had / 4)
    return p;
  void *q = sf_heap_take(sf_is_dup((uintptr_t)p) ? SF_DUP : SF_CRC, 16, n);
  if (!q)
    return NULL;
  __sf_s_memcpy(q, p, had < n ? had : n);
  sf_heap_free(p);
  return q;
}
SF_API void *__sf_s_provenance_realloc(void *p, size_t n) {
  if (!sf_is_heap(p))
    return __sf_provenance_realloc(p, n);
  uintptr_t from = (uintptr_t)p;
  void *to = __sf_s_realloc(p, n);
  if (to)
    sf_provenance_moved((uintptr_t)to, from, n);
  return to;
}
SF_API void *__sf_s_reallocarray(void *p, size_t n, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(n, size, &bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  return __sf_s_realloc(p, bytes);
}

/* Memory that C++ gives back; what is not protected, to whoever gave it out. */
#define WEAK __attribute__((weak))
#define DELETES(NAME, MANGLED, PARAMETERS, ARGUMENTS) \
  extern void MANGLED PARAMETERS WEAK;                \
  SF_API void __sf_s_delete##NAME PARAMETERS { sf_is_heap(p) ? sf_heap_free(p) : MANGLED ARGUMENTS; }
DELETES(, _ZdlPv, (void *p), (p))
DELETES(_array, _ZdaPv, (void *p), (p))
DELETES(_sized, _ZdlPvm, (void *p, size_t n), (p, n))
DELETES(_array_sized, _ZdaPvm, (void *p, size_t n), (p, n))
DELETES(_aligned, _ZdlPvSt11align_val_t, (void *p, size_t alignment), (p, alignment))
DELETES(_array_aligned, _ZdaPvSt11align_val_t, (void *p, size_t alignment), (p, alignment))
DELETES(_sized_aligned, _ZdlPvmSt11align_val_t, (void *p, size_t n, size_t alignment), (p, n, alignment))
DELETES(_array_sized_aligned, _ZdaPvmSt11align_val_t, (void *p, size_t n, size_t alignment), (p, n, alignment))
DELETES(_nothrow, _ZdlPvRKSt9nothrow_t, (void *p, const void *tag), (p, tag))
DELETES(_array_nothrow, _ZdaPvRKSt9nothrow_t, (void *p, const void *tag), (p, tag))

/* How a hash table of libstdc++ grows: its policy keeps the size at which to do so next. */
struct rehash_answer {
  uint64_t first, second;
};
extern struct rehash_answer _ZNKSt8__detail20_Prime_rehash_policy14_M_need_rehashEmmm(void *, size_t, size_t, size_t) WEAK;
extern size_t _ZNKSt8__detail20_Prime_rehash_policy11_M_next_bktEm(void *, size_t) WEAK;
#define POLICY_BYTES 16
SF_API struct rehash_answer __sf_s_need_rehash(void *p, size_t buckets, size_t elements, size_t more) {
  look_outside(p, POLICY_BYTES);
  WRITES(struct rehash_answer, p, POLICY_BYTES, _ZNKSt8__detail20_Prime_rehash_policy14_M_need_rehashEmmm(p, buckets, elements, more),
         POLICY_BYTES);
}
SF_API size_t __sf_s_next_bucket(void *p, size_t n) {
  look_outside(p, POLICY_BYTES);
  WRITES(size_t, p, POLICY_BYTES, _ZNKSt8__detail20_Prime_rehash_policy11_M_next_bktEm(p, n), POLICY_BYTES);
}

/* What functions allocate whose memory is protected: KIND is dup or crc. */

extern _Noreturn void _ZSt17__throw_bad_allocv(void) WEAK;
static void *or_throw_outside(void *p) {
  if (!p)
    _ZSt17__throw_bad_allocv();
  return p;
}

static void *zeroed(enum sf_kind kind, size_t alignment, size_t n) {
  void *p = sf_heap_take(kind, alignment, n);
  if (p)
    __sf_s_memset(p, 0, n);
  return p;
}

/* One kind of block in hardened code: given out in the first run, the same again in the second. Zeroed when it is made:
   in the first run for both, since the log does not know what nobody has. */
static void *given_outside(const char *name, enum sf_kind kind, size_t alignment, size_t n, bool zero) {
  INSIDE;
  uint64_t mix = sf_mix(sf_mix(n, alignment), kind);
  if (!FIRST)
    return (void *)sf_replay(c, name, mix)->result;
  void *p = zero ? zeroed(kind, alignment, n) : sf_heap_take(kind, alignment, n);
  sf_record(c, name, mix, 0)->result = (uint64_t)p;
  return p;
}

static const char name_memory[] = "malloc"; /* as in libc.c: a retry gives these back */

static bool product(size_t a, size_t b, size_t *bytes) {
  if (!__builtin_mul_overflow(a, b, bytes))
    return true;
  errno = ENOMEM;
  return false;
}

#define KIND(name, kind)                                                                                                            \
  SF_API void *__sf_s_##name##_malloc(size_t n) { return sf_heap_take(kind, 16, n); }                                               \
  SF_API void *__sf_s_##name##_calloc(size_t a, size_t b) {                                                                         \
    size_t n;                                                                                                                       \
    return product(a, b, &n) ? zeroed(kind, 16, n) : NULL;                                                                          \
  }                                                                                                                                 \
  SF_API void *__sf_s_##name##_realloc(void *p, size_t n) { return p ? __sf_s_realloc(p, n) : sf_heap_take(kind, 16, n); }          \
  SF_API void *__sf_s_##name##_aligned_alloc(size_t alignment, size_t n) { return sf_heap_take(kind, alignment, n); }               \
  SF_API int __sf_s_##name##_posix_memalign(void **out, size_t alignment, size_t n) {                                               \
    void *p = sf_heap_take(kind, alignment, n);                                                                                     \
    if (!p)                                                                                                                         \
      return ENOMEM;                                                                                                                \
    before(out, sizeof *out);                                                                                                       \
    *out = p;                                                                                                                       \
    after(out, sizeof *out);                                                                                                        \
    return 0;                                                                                                                       \
  }                                                                                                                                 \
  SF_API char *__sf_s_##name##_strdup(const char *s) {                                                                              \
    size_t n = strlen(s) + 1;                                                                                                       \
    char *p = sf_heap_take(kind, 16, n);                                                                                            \
    return p ? __sf_s_memcpy(p, s, n) : NULL;                                                                                       \
  }                                                                                                                                 \
  SF_API void *__sf_w_s_##name##_malloc(size_t n) { return given_outside(name_memory, kind, 16, n, false); }                        \
  SF_API void *__sf_w_s_##name##_calloc(size_t a, size_t b) {                                                                       \
    size_t n;                                                                                                                       \
    return product(a, b, &n) ? given_outside(name_memory, kind, 16, n, true) : NULL;                                                \
  }                                                                                                                                 \
  SF_API void *__sf_w_s_##name##_aligned_alloc(size_t alignment, size_t n) {                                                        \
    return given_outside(name_memory, kind, alignment, n, false);                                                                   \
  }                                                                                                                                 \
  SF_API int __sf_w_s_##name##_posix_memalign(void **out, size_t alignment, size_t n) {                                             \
    void *p = given_outside(name_memory, kind, alignment, n, false);                                                                \
    if (!p)                                                                                                                         \
      return ENOMEM;                                                                                                                \
    LOGGED(out, sizeof *out, *out = p);                                                                                             \
    return 0;                                                                                                                       \
  }                                                                                                                                 \
  SF_API char *__sf_w_s_##name##_strdup(const char *s) {                                                                            \
    size_t n = strlen(s) + 1;                                                                                                       \
    void *p = given_outside(name_memory, kind, 16, n, false);                                                                       \
    if (p)                                                                                                                          \
      __sf_memcpy(sf_own(p), s, n);                                                                                                 \
    return p;                                                                                                                       \
  }                                                                                                                                 \
  SF_API void *__sf_w_s_##name##_realloc(void *p, size_t n) {                                                                       \
    if (p)                                                                                                                          \
      return __sf_w_realloc(p, n);                                                                                                  \
    return given_outside(name_memory, kind, 16, n, false);                                                                          \
  }                                                                                                                                 \
  SF_API void *__sf_s_##name##_new(size_t n) { return or_throw_outside(sf_heap_take(kind, 16, n ? n : 1)); }                        \
  SF_API void *__sf_s_##name##_new_nothrow(size_t n, const void *tag) {                                                             \
    (void)tag;                                                                                                                      \
    return sf_heap_take(kind, 16, n ? n : 1);                                                                                       \
  }                                                                                                                                 \
  SF_API void *__sf_s_##name##_new_aligned(size_t n, size_t alignment) {                                                            \
    return or_throw_outside(sf_heap_take(kind, alignment, n ? n : 1));                                                              \
  }                                                                                                                                 \
  SF_API void *__sf_s_##name##_aligned_nothrow(size_t n, size_t alignment, const void *tag) {                                       \
    (void)tag;                                                                                                                      \
    return sf_heap_take(kind, alignment, n ? n : 1);                                                                                \
  }                                                                                                                                 \
  SF_API void *__sf_w_s_##name##_new(size_t n) { return or_throw_outside(given_outside(name_memory, kind, 16, n ? n : 1, false)); } \
  SF_API void *__sf_w_s_##name##_new_nothrow(size_t n, const void *tag) {                                                           \
    (void)tag;                                                                                                                      \
    return given_outside(name_memory, kind, 16, n ? n : 1, false);                                                                  \
  }                                                                                                                                 \
  SF_API void *__sf_w_s_##name##_new_aligned(size_t n, size_t alignment) {                                                          \
    return or_throw_outside(given_outside(name_memory, kind, alignment, n ? n : 1, false));                                         \
  }                                                                                                                                 \
  SF_API void *__sf_w_s_##name##_aligned_nothrow(size_t n, size_t alignment, const void *tag) {                                     \
    (void)tag;                                                                                                                      \
    return given_outside(name_memory, kind, alignment, n ? n : 1, false);                                                           \
  }
SF_API void *__sf_w_realloc(void *p, size_t n);
KIND(dup, SF_DUP)
KIND(crc, SF_CRC)
SF_API size_t __sf_w_s_usable(void *p) { return __sf_s_usable(p); }
