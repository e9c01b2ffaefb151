/*
 * What a handler reads through the C library, for --validate=async: each word goes the way of a load (core.c: log_read),
 * before the library reads it.
 *
 * Invariants
 *  1. In the second run nothing is read here that the run's table does not show: strings are looked at word by word, and
 *     a word only after it was found.
 *  2. Linked with async.c alone.
 *
 * Not covered: conversions of wide characters in formats: refused.
 */
#include "runtime.h"

#include <stdarg.h>

void sf_load_slow(uintptr_t at);

SF_API void __sf_reads(const void *bytes, size_t length) {
  uintptr_t at = (uintptr_t)bytes, end = at + length;
  if (length == 0)
    return;
  for (uintptr_t word = at & ~7ull; word < end; word += 8)
    sf_load_slow(word);
}

SF_API void __sf_reads_search(const void *bytes, int byte, size_t length) {
  const uint8_t *b = bytes;
  for (size_t i = 0; i < length; i++) {
    if (i == 0 || ((uintptr_t)(b + i) & 7) == 0)
      sf_load_slow((uintptr_t)(b + i) & ~7ull);
    if (b[i] == (uint8_t)byte)
      return;
  }
}

SF_API void __sf_reads_string(const char *string, size_t most) { __sf_reads_search(string, 0, most); }

/* printf's strings: where the arguments of a list lie is known from their conversions. */
void sf_reads_format(const char *how, __builtin_va_list of) {
  va_list list;
  va_copy(list, of);
  __sf_reads_string(how, SIZE_MAX);
  for (; *how; how++) {
    if (*how != '%')
      continue;
    how++;
    size_t most = SIZE_MAX;
    bool wide = false, long_double = false, quad = false;
    bool precision = false;
    for (;; how++) {
      if (*how == '*') {
        int v = va_arg(list, int);
        if (precision && v >= 0)
          most = (size_t)v;
      } else if (*how == '.') {
        precision = true;
        most = 0;
      } else if (*how >= '0' && *how <= '9') {
        if (precision)
          most = most * 10 + (size_t)(*how - '0');
      } else if (*how == '-' || *how == '+' || *how == ' ' || *how == '#' || *how == '\'' || *how == 'h') {
      } else if (*how == 'l') {
        wide = quad = true;
      } else if (*how == 'z' || *how == 'j' || *how == 't' || *how == 'q') {
        quad = true;
      } else if (*how == 'L') {
        long_double = quad = true;
      } else {
        break;
      }
    }
    switch (*how) {
    case '%':
    case 'm':
      break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      if (quad)
        (void)va_arg(list, long);
      else
        (void)va_arg(list, int);
      break;
    case 'c':
      (void)va_arg(list, int);
      break;
    case 'p':
      (void)va_arg(list, void *);
      break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case 'a':
    case 'A':
      if (long_double)
        (void)va_arg(list, long double);
      else
        (void)va_arg(list, double);
      break;
    case 's': {
      const char *s = va_arg(list, const char *);
      if (wide)
        sf_stop("a wide string is printed in a handler, and --validate=async does not keep it", "print it outside handlers");
      if (s)
        __sf_reads_string(s, most);
      break;
    }
    default:
      sf_stop("a handler prints with a conversion that --validate=async does not know", "print outside handlers");
    }
  }
  va_end(list);
}
