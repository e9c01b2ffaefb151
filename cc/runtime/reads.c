/*
 * What a handler reads through the C library, for --validate=async: each word goes the way of a load (log.c: log_read),
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
void sf_reads_format(const char *how, __builtin_va_list of); /* for async.c */

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

static void string(const char **slot, size_t most, bool wide) {
  if (wide)
    sf_stop("a wide string is printed in a handler, and --validate=async does not keep it", "print it outside handlers");
  __sf_reads_string(*slot, most);
}

/* printf's strings: where the arguments of a list lie is known from their conversions. */
void sf_reads_format(const char *how, __builtin_va_list of) {
  __sf_reads_string(how, SIZE_MAX);
  sf_format_strings(how, of, string);
}
