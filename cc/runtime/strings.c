/*
 * Functions of the C library that only compute, but write their result into the program's memory: computed in both
 * runs, the destination logged. cc/tests/differ.c holds them against glibc.
 *
 * Invariant: exactly the bytes that the C library would change are logged, never more than the destination has.
 */
#define _GNU_SOURCE
#include "state.h"
#include "wrapper.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

SF_API void *__sf_w_mempcpy(void *to, const void *from, size_t n) { return (char *)__sf_memcpy(to, from, n) + n; }
SF_API void *__sf_w_memcpy_chk(void *to, const void *from, size_t n, size_t room) {
  if (n > room)
    abort();
  return __sf_memcpy(to, from, n);
}
SF_API void *__sf_w_memmove_chk(void *to, const void *from, size_t n, size_t room) {
  if (n > room)
    abort();
  return __sf_memmove(to, from, n);
}
SF_API void *__sf_w_memset_chk(void *to, int byte, size_t n, size_t room) {
  if (n > room)
    abort();
  return __sf_memset(to, byte, n);
}
SF_API void __sf_w_bzero(void *to, size_t n) { __sf_memset(to, 0, n); }
SF_API void __sf_w_explicit_bzero(void *to, size_t n) { __sf_memset(to, 0, n); }

SF_API char *__sf_w_strcpy(char *to, const char *from) { return __sf_memcpy(to, from, strlen(from) + 1); }
SF_API char *__sf_w_stpcpy(char *to, const char *from) {
  size_t n = strlen(from);
  return (char *)__sf_memcpy(to, from, n + 1) + n;
}
SF_API char *__sf_w_strncpy(char *to, const char *from, size_t n) {
  LOGGED(to, n, strncpy(to, from, n));
  return to;
}
SF_API char *__sf_w_strcat(char *to, const char *from) {
  __sf_memcpy(to + strlen(to), from, strlen(from) + 1);
  return to;
}
SF_API char *__sf_w_strncat(char *to, const char *from, size_t n) {
  char *end = to + strlen(to);
  size_t length = strnlen(from, n);
  LOGGED(end, length + 1, {
    sf_copy(end, from, length);
    end[length] = 0;
  });
  return to;
}
SF_API char *__sf_w_strcpy_chk(char *to, const char *from, size_t room) {
  if (strlen(from) >= room)
    abort();
  return __sf_w_strcpy(to, from);
}
SF_API char *__sf_w_strncpy_chk(char *to, const char *from, size_t n, size_t room) {
  if (n > room)
    abort();
  return __sf_w_strncpy(to, from, n);
}
SF_API char *__sf_w_strcat_chk(char *to, const char *from, size_t room) {
  if (strlen(to) + strlen(from) >= room)
    abort();
  return __sf_w_strcat(to, from);
}

SF_API char *__sf_w_stpcpy_chk(char *to, const char *from, size_t room) {
  if (strlen(from) >= room)
    abort();
  return __sf_w_stpcpy(to, from);
}
SF_API char *__sf_w_strncat_chk(char *to, const char *from, size_t n, size_t room) {
  if (strlen(to) + strnlen(from, n) >= room)
    abort();
  return __sf_w_strncat(to, from, n);
}
SF_API void *__sf_w_mempcpy_chk(void *to, const void *from, size_t n, size_t room) {
  if (n > room)
    abort();
  return __sf_w_mempcpy(to, from, n);
}
SF_API void __sf_w_explicit_bzero_chk(void *to, size_t n, size_t room) {
  if (n > room)
    abort();
  __sf_memset(to, 0, n);
}
SF_API char *__sf_w_stpncpy(char *to, const char *from, size_t n) {
  char *end;
  LOGGED(to, n, end = stpncpy(to, from, n));
  return end;
}

SF_API char *__sf_w_stpncpy_chk(char *to, const char *from, size_t n, size_t room) {
  if (n > room)
    abort();
  return __sf_w_stpncpy(to, from, n);
}

/* Formatted beside the destination first: how much of it changes is known only then. */
static int format_strings(char *to, size_t room, const char *how, va_list list) {
  if (sf_async())
    __sf_async.reads_format(how, list);
  char small[512];
  va_list copy;
  va_copy(copy, list);
  int n = vsnprintf(small, sizeof small, how, list);
  if (n >= 0 && room) {
    size_t length = (size_t)n < room ? (size_t)n : room - 1;
    if (length < sizeof small) {
      LOGGED(to, length + 1, {
        sf_copy(to, small, length);
        to[length] = 0;
      });
    } else {
      LOGGED(to, length + 1, vsnprintf(to, length + 1, how, copy));
    }
  }
  va_end(copy);
  return n;
}

#define VARIADIC(NAME, PARAMETERS, TO, ROOM)     \
  SF_API int __sf_w_##NAME PARAMETERS {          \
    va_list list;                                \
    va_start(list, how);                         \
    int n = format_strings(TO, ROOM, how, list); \
    va_end(list);                                \
    return n;                                    \
  }
VARIADIC(snprintf, (char *to, size_t room, const char *how, ...), to, room)
VARIADIC(sprintf, (char *to, const char *how, ...), to, SIZE_MAX)
VARIADIC(snprintf_chk, (char *to, size_t room, int flag, size_t size, const char *how, ...), to, ((void)flag, room <= size ? room : size))
VARIADIC(sprintf_chk, (char *to, int flag, size_t size, const char *how, ...), to, ((void)flag, size))
SF_API int __sf_w_vsnprintf(char *to, size_t room, const char *how, va_list list) {
  OWN_LIST(how, list);
  return format_strings(to, room, how, list);
}
SF_API int __sf_w_vsprintf(char *to, const char *how, va_list list) {
  OWN_LIST(how, list);
  return format_strings(to, SIZE_MAX, how, list);
}
SF_API int __sf_w_vsnprintf_chk(char *to, size_t room, int flag, size_t size, const char *how, va_list list) {
  (void)flag;
  OWN_LIST(how, list);
  return format_strings(to, room <= size ? room : size, how, list);
}

SF_API int __sf_w_vsprintf_chk(char *to, int flag, size_t size, const char *how, va_list list) {
  (void)flag;
  OWN_LIST(how, list);
  return format_strings(to, size, how, list);
}

/* Into memory of its own. */
extern void *__sf_w_malloc(size_t);

static int allocated(char **to, const char *how, va_list list) {
  va_list copy;
  va_copy(copy, list);
  int n = vsnprintf(NULL, 0, how, list);
  char *text = n < 0 ? NULL : __sf_w_malloc((size_t)n + 1);
  if (text) {
    LOGGED(text, (size_t)n + 1, vsnprintf(text, (size_t)n + 1, how, copy));
    LOGGED(to, sizeof *to, *to = text);
  }
  va_end(copy);
  return text ? n : -1;
}

SF_API int __sf_w_vasprintf(char **to, const char *how, va_list list) {
  OWN_LIST(how, list);
  return allocated(to, how, list);
}
SF_API int __sf_w_vasprintf_chk(char **to, int flag, const char *how, va_list list) { return (void)flag, __sf_w_vasprintf(to, how, list); }
SF_API int __sf_w_asprintf(char **to, const char *how, ...) {
  va_list list;
  va_start(list, how);
  int n = allocated(to, how, list);
  va_end(list);
  return n;
}
SF_API int __sf_w_asprintf_chk(char **to, int flag, const char *how, ...) {
  (void)flag;
  va_list list;
  va_start(list, how);
  int n = allocated(to, how, list);
  va_end(list);
  return n;
}

#define NUMBER(NAME, TYPE, PARAMETERS, CALL)                  \
  SF_API TYPE __sf_w_##NAME PARAMETERS {                      \
    char *stop;                                               \
    TYPE v = CALL;                                            \
    if (end)                                                  \
      LOGGED(end, sizeof *end, *end = (char *)sf_home(stop)); \
    return v;                                                 \
  }
NUMBER(strtol, long, (const char *s, char **end, int base), strtol(s, &stop, base))
NUMBER(strtoul, unsigned long, (const char *s, char **end, int base), strtoul(s, &stop, base))
NUMBER(strtoll, long long, (const char *s, char **end, int base), strtoll(s, &stop, base))
NUMBER(strtoull, unsigned long long, (const char *s, char **end, int base), strtoull(s, &stop, base))
NUMBER(strtod, double, (const char *s, char **end), strtod(s, &stop))
NUMBER(strtof, float, (const char *s, char **end), strtof(s, &stop))
NUMBER(strtold, long double, (const char *s, char **end), strtold(s, &stop))

/* The text may be the library's own. */
SF_API char *__sf_w_strerror_r(int error, char *to, size_t room) {
  char *text;
  LOGGED(to, room, text = strerror_r(error, to, room));
  return text;
}
extern int __xpg_strerror_r(int, char *, size_t);
SF_API int __sf_w_xpg_strerror_r(int error, char *to, size_t room) {
  int failed;
  LOGGED(to, room, failed = __xpg_strerror_r(error, to, room));
  return failed;
}

SF_API char *__sf_w_strtok_r(char *s, const char *of, char **rest) {
  if (!s)
    s = sf_own(*rest);
  if (sf_async()) {
    __sf_async.reads_string(s, SIZE_MAX);
    __sf_async.reads_string(of, SIZE_MAX);
  }
  s += strspn(s, of);
  char *end = s + strcspn(s, of);
  char *next = *end ? end + 1 : end;
  bool empty = s == end;
  if (*end)
    LOGGED(end, 1, *end = 0);
  LOGGED(rest, sizeof *rest, *rest = (char *)sf_home(next));
  return empty ? NULL : s;
}

/* In handlers it keeps its place for each thread, and apart from that of code outside. */
SF_API char *__sf_w_strtok(char *s, const char *of) {
  static __thread char *rest;
  if (sf_async())
    __sf_async.reads(&rest, sizeof rest);
  if (!s && !rest)
    sf_stop("a handler goes on with strtok where code outside handlers has begun", "use strtok_r");
  return __sf_w_strtok_r(s, of, &rest);
}

SF_API char *__sf_w_strsep(char **from, const char *of) {
  if (sf_async())
    __sf_async.reads(from, sizeof *from);
  char *s = sf_own(*from);
  if (!s)
    return NULL;
  if (sf_async()) {
    __sf_async.reads_string(s, SIZE_MAX);
    __sf_async.reads_string(of, SIZE_MAX);
  }
  char *end = s + strcspn(s, of);
  char *next = *end ? end + 1 : NULL;
  if (*end)
    LOGGED(end, 1, *end = 0);
  LOGGED(from, sizeof *from, *from = (char *)sf_home(next));
  return s;
}

SF_API const char *__sf_w_inet_ntop(int family, const void *from, char *to, socklen_t room) {
  char text[INET6_ADDRSTRLEN];
  if (sf_async() && (family == AF_INET || family == AF_INET6))
    __sf_async.reads(from, family == AF_INET ? 4 : 16);
  if (!inet_ntop(family, from, text, sizeof text))
    return NULL;
  if (strlen(text) >= room) {
    errno = ENOSPC;
    return NULL;
  }
  return __sf_memcpy(to, text, strlen(text) + 1);
}

SF_API int __sf_w_inet_pton(int family, const char *from, void *to) {
  uint8_t bytes[16];
  int r = inet_pton(family, from, bytes);
  if (r == 1)
    __sf_memcpy(to, bytes, family == AF_INET ? 4 : 16);
  return r;
}

SF_API int __sf_w_inet_aton(const char *from, struct in_addr *to) {
  struct in_addr address;
  int fine = inet_aton(from, &address);
  if (fine)
    __sf_memcpy(to, &address, sizeof address);
  return fine;
}

SF_API void *__sf_w_memccpy(void *to, const void *from, int stop, size_t n) {
  const uint8_t *at = memchr(from, stop, n);
  size_t length = at ? (size_t)(at - (const uint8_t *)from) + 1 : n;
  __sf_memcpy(to, from, length);
  return at ? (uint8_t *)to + length : NULL;
}

/* A number taken apart, one part of which is stored. In the C library itself, unlike the rest of mathematics. */
#define PARTS(NAME, TYPE, PART)                 \
  extern TYPE NAME(TYPE, PART *);               \
  SF_API TYPE __sf_w_##NAME(TYPE x, PART *to) { \
    PART part;                                  \
    TYPE rest = NAME(x, &part);                 \
    __sf_memcpy(to, &part, sizeof part);        \
    return rest;                                \
  }
PARTS(frexp, double, int)
PARTS(frexpf, float, int)
PARTS(modf, double, double)
PARTS(modff, float, float)

SF_API struct tm *__sf_w_localtime_r(const time_t *at, struct tm *to) {
  struct tm parts;
  memset(&parts, 0, sizeof parts); /* it has a hole, which is copied and compared */
  return localtime_r(at, &parts) ? __sf_memcpy(to, &parts, sizeof parts) : NULL;
}

SF_API struct tm *__sf_w_gmtime_r(const time_t *at, struct tm *to) {
  struct tm parts;
  memset(&parts, 0, sizeof parts); /* it has a hole, which is copied and compared */
  return gmtime_r(at, &parts) ? __sf_memcpy(to, &parts, sizeof parts) : NULL;
}

/* In handlers these answer in memory of the thread's own, so no other thread writes there between the runs. */
static __thread struct tm of_thread;
SF_API struct tm *__sf_w_localtime(const time_t *at) { return __sf_w_localtime_r(at, &of_thread); }
SF_API struct tm *__sf_w_gmtime(const time_t *at) { return __sf_w_gmtime_r(at, &of_thread); }

#define TIME_TEXT 26 /* what both need, by their manual */
SF_API char *__sf_w_ctime_r(const time_t *at, char *to) {
  char text[TIME_TEXT];
  return ctime_r(at, text) ? __sf_memcpy(to, text, strlen(text) + 1) : NULL;
}
SF_API char *__sf_w_asctime_r(const struct tm *at, char *to) {
  char text[TIME_TEXT];
  return asctime_r(at, text) ? __sf_memcpy(to, text, strlen(text) + 1) : NULL;
}

/* What the text does not name stays as it was. */
SF_API char *__sf_w_strptime(const char *text, const char *how, struct tm *to) {
  char *end;
  LOGGED(to, sizeof *to, end = strptime(text, how, to));
  return end;
}

SF_API time_t __sf_w_timegm(struct tm *parts) {
  time_t at;
  LOGGED(parts, sizeof *parts, at = timegm(parts));
  return at;
}

SF_API time_t __sf_w_mktime(struct tm *parts) {
  time_t at;
  LOGGED(parts, sizeof *parts, at = mktime(parts));
  return at;
}

SF_API size_t __sf_w_strftime(char *to, size_t room, const char *how, const struct tm *at) {
  size_t n;
  LOGGED(to, room, n = strftime(to, room, how, at));
  return n;
}

/* The comparison may be hardened code: it then logs for itself. */
SF_API void __sf_w_qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *)) {
  int (*hardened)(const void *, const void *) = (int (*)(const void *, const void *))__sf_clone((void *)compare, "qsort");
  LOGGED(base, n * size, qsort(base, n, size, hardened));
}

SF_API void __sf_w_qsort_r(void *base, size_t n, size_t size, int (*compare)(const void *, const void *, void *), void *with) {
  int (*hardened)(const void *, const void *, void *) = (int (*)(const void *, const void *, void *))__sf_clone((void *)compare, "qsort_r");
  LOGGED(base, n * size, qsort_r(base, n, size, hardened, with));
}

SF_API void *__sf_w_bsearch(const void *key, const void *base, size_t n, size_t size, int (*compare)(const void *, const void *)) {
  return bsearch(key, base, n, size, (int (*)(const void *, const void *))__sf_clone((void *)compare, "bsearch"));
}
