/*
 * --find-nondeterminism: every store of the first run is kept in order; the second run's are compared as they happen.
 *
 * The first one that differs is named with its line and the calls that led there, which is where a handler depends on
 * something else than its input and the state: a clock, an address, another thread.
 *
 * Invariant: only programs built with the flag reach this file; their code calls __sf_trace after each store.
 */
#define _GNU_SOURCE
#include "runtime.h"

#include <execinfo.h>
#include <string.h>
#include <unistd.h>

struct step {
  uintptr_t at;
  uint64_t length;
  uint64_t content; /* up to 8 bytes as they are, more as their hash */
  const char *where;
};

static _Noreturn SF_COLD void found_trace(const struct step *first, const struct step *second) {
  void *frames[32];
  int n = backtrace(frames, 32);
  static const char head[] = "steadfast: the first store in which the runs differ; the second run came here by\n";
  (void)!write(2, head, sizeof head - 1);
  backtrace_symbols_fd(frames, n, 2);
  if (first->at != second->at || first->length != second->length)
    sf_differ_name(first->at != second->at ? "nondeterminism: the runs store to different addresses, at"
                                           : "nondeterminism: the runs store different lengths, at",
                   second->where, first->at != second->at ? first->at : first->length,
                   first->at != second->at ? second->at : second->length);
  sf_differ_name("nondeterminism: the runs store different values, at", second->where, first->content, second->content);
}

SF_API void __sf_trace(const void *at, size_t length, const char *where) {
  struct sf_context *c = __sf_own;
  uintptr_t address = (uintptr_t)at;
  if (address - __sf_tls.stack_low < __sf_tls.stack_length)
    return;
  for (size_t i = 0; i < c->ignored_count; i++)
    if (address - c->ignored[i].at < c->ignored[i].length)
      return;
  struct step now = {.at = address, .length = length, .where = where};
  if (length <= 8)
    memcpy(&now.content, at, length);
  else
    now.content = __sf_hash(at, length);
  if (__sf_tls.phase == SF_E1) {
    *(struct step *)sf_grow(&c->trace, sizeof now) = now;
    return;
  }
  struct step *first = (struct step *)c->trace.base + c->trace_cursor;
  if (c->trace_cursor >= c->trace.used / sizeof now)
    sf_differ_name("nondeterminism: the second run stores more often, at", where, 0, address);
  c->trace_cursor++;
  if (first->at != now.at || first->length != now.length || first->content != now.content)
    found_trace(first, &now);
}
