/*
 * sscanf in handlers: scanned beside the program's memory first, since only format and text say how much of it changes; then
 * what has been found is stored, and logged, byte for byte what the C library would have written.
 *
 * Not covered, and refused when called: %m, which allocates; places by number (%2$d); %hhn, which cannot be told from not
 * having been reached; more than 16 results; results of more than 64 KiB.
 */
#define _GNU_SOURCE
#include "state.h"
#include "wrapper.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#define RESULTS 16
#define ASIDE_MAX 65536

/* What no conversion has written to. A count of characters (%n) is never negative. */
#define UNTOUCHED 0xff

struct result {
  size_t size; /* the most that it takes */
  char *aside;
  char kind;   /* 'v' value, 's' text, 'S' wide text, 'n' characters so far */
};

static _Noreturn void refuse_scan(void) {
  sf_stop("sscanf in a handler knows no %m, %hhn, nor places by number, and at most 16 results of 64 KiB together",
          "take the text apart in several calls, or with strtol and its kin");
}

static size_t number(const char **how) {
  size_t n = 0;
  for (; **how >= '0' && **how <= '9'; ++*how)
    n = n < ASIDE_MAX ? n * 10 + (size_t)(**how - '0') : n;
  return n;
}

/* Behind `[`: a bracket that comes first is one of the set. */
static const char *set_end(const char *how) {
  how += *how == '^';
  how += *how == ']';
  while (*how && *how != ']')
    how++;
  return how;
}

/* One conversion, from behind its percent sign; false where the C library ends as well. Kind 0: nothing is stored. */
static bool conversion(const char **at, size_t text, struct result *r) {
  const char *how = *at;
  bool suppressed = false;
  size_t width = number(&how);
  if (*how == '$')
    refuse_scan();
  for (; *how == '*' || *how == '\''; how++)
    suppressed |= *how == '*';
  if (!width)
    width = number(&how);
  size_t integer = 4, real = 4;
  bool wide = false, byte = false;
  for (;; how++) {
    if (*how == 'h')
      byte = integer == 2, integer = byte ? 1 : 2;
    else if (*how == 'l' || *how == 'q' || *how == 'j' || *how == 'z' || *how == 't' || *how == 'L')
      integer = 8, real = *how == 'L' || *how == 'q' || wide ? 10 : 8, wide |= *how == 'l';
    else
      break;
  }
  r->kind = 'v';
  char c = *how;
  switch (c) {
  case 'n':
    r->kind = 'n'; /* fallthrough */
  case 'd':
  case 'i':
  case 'o':
  case 'u':
  case 'x':
  case 'X':
    r->size = integer;
    break;
  case 'p':
    r->size = 8;
    break;
  case 'a':
  case 'A':
  case 'e':
  case 'E':
  case 'f':
  case 'F':
  case 'g':
  case 'G':
    r->size = real;
    break;
  case 'c':
  case 'C':
    wide |= c == 'C';
    r->size = (width ? width : 1) * (wide ? sizeof(wchar_t) : 1);
    break;
  case '[':
    how = set_end(how + 1); /* fallthrough */
  case 's':
  case 'S':
    wide |= c == 'S';
    r->kind = wide ? 'S' : 's';
    r->size = ((width && width < text ? width : text) + 1) * (wide ? sizeof(wchar_t) : 1);
    break;
  case '%':
    r->kind = 0;
    break;
  case 'm':
    refuse_scan();
  default:
    return false;
  }
  if (!*how)
    return false;
  if (suppressed)
    r->kind = 0;
  if (r->kind == 'n' && byte)
    refuse_scan();
  *at = how + 1;
  return true;
}

static size_t found_scan(const struct result *r) {
  if (r->kind == 's')
    return strlen(r->aside) + 1;
  if (r->kind == 'S')
    return (wcslen((const wchar_t *)(const void *)r->aside) + 1) * sizeof(wchar_t);
  return r->size;
}

static bool touched_scan(const struct result *r) {
  for (size_t i = 0; i < r->size; i++)
    if ((unsigned char)r->aside[i] != UNTOUCHED)
      return true;
  return false;
}

SF_API int __sf_w_sscanf(const char *from, const char *how, ...) {
  if (sf_async()) {
    __sf_async.reads_string(from, SIZE_MAX);
    __sf_async.reads_string(how, SIZE_MAX);
  }
  struct result results[RESULTS] = {{0}};
  size_t count = 0, bytes = 0, text = strlen(from);
  for (const char *at = how; *at;) {
    if (*at++ != '%')
      continue;
    struct result r = {0};
    if (!conversion(&at, text, &r))
      break;
    if (!r.kind)
      continue;
    if (count == RESULTS || r.size > ASIDE_MAX - bytes)
      refuse_scan();
    bytes += (r.size + 15) & ~15ul;
    results[count++] = r;
  }
  char *aside = __builtin_alloca_with_align(bytes + 16, 128);
  memset(aside, UNTOUCHED, bytes + 16);
  void *into[RESULTS] = {0};
  for (size_t i = 0, used = 0; i < count; i++) {
    into[i] = results[i].aside = aside + used;
    used += (results[i].size + 15) & ~15ul;
  }
  int converted = sscanf(from, how, into[0], into[1], into[2], into[3], into[4], into[5], into[6], into[7], into[8], into[9], into[10],
                         into[11], into[12], into[13], into[14], into[15]);
  va_list list;
  va_start(list, how);
  int stored = 0;
  for (size_t i = 0; i < count; i++) {
    const struct result *r = &results[i];
    char *to = va_arg(list, char *);
    if (r->kind == 'n' ? !touched_scan(r) : stored++ >= converted)
      continue;
    size_t size = found_scan(r);
    LOGGED(to, size, sf_copy(to, r->aside, size));
  }
  va_end(list);
  return converted;
}
