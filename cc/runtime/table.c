/*
 * From a function's address to what hardened code calls in its place.
 *
 * The pass leaves a pair for each function that a pointer may lead to (section sf_clones). At start the pairs of the
 * program become an open-addressed table that is never written again.
 *
 * Invariant: an address that is not in the table is never called: the program stops and says where.
 *
 * Not covered: functions of libraries that are loaded later (dlopen).
 */
#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>

/* A static program may lack it. */
extern __typeof__(dladdr) dladdr __attribute__((weak));

extern const struct sf_clone __start_sf_clones[] __attribute__((weak, visibility("hidden")));
extern const struct sf_clone __stop_sf_clones[] __attribute__((weak, visibility("hidden")));

static struct sf_clone *pairs;
static size_t mask;

static inline size_t place(const void *function) {
  return (size_t)((uint64_t)function * 0x9e3779b97f4a7c15ull >> 32) & mask; /* 2^64 / golden ratio */
}

__attribute__((constructor(103))) static void prepare_table(void) {
  const struct sf_clone *from = __start_sf_clones, *to = __stop_sf_clones;
  __asm__("" : "+r"(from), "+r"(to)); /* without any pair both are 0, which the compiler thinks impossible */
  size_t count = (size_t)(to - from), size = 16;
  while (size < 2 * count)
    size *= 2;
  pairs = sf_map(size * sizeof *pairs);
  mask = size - 1;
  for (const struct sf_clone *p = from; p != to; p++) {
    size_t i = place(p->original);
    while (pairs[i].original && pairs[i].original != p->original)
      i = (i + 1) & mask;
    pairs[i] = *p;
  }
  sf_syscall(10 /* mprotect */, (long)pairs, (long)((size * sizeof *pairs + 4095) & ~4095ul), 1 /* READ */, 0, 0, 0);
}

extern _Noreturn void __sf_refuse(const char *what, const char *where);

void *sf_clone_of(void *function) {
  size_t i = place(function);
  while (pairs[i].original && pairs[i].original != function)
    i = (i + 1) & mask;
  return pairs[i].original ? pairs[i].hardened : NULL;
}

/* The one call of a library in this file: the program ends. */
static SF_COLD _Noreturn void refuse_table(void *function, const char *where) {
  static char what[200];
  Dl_info found;
  const char *parts[] = {"a function", " through a pointer that has no hardened code"};
  if (dladdr && dladdr(function, &found) && found.dli_sname && found.dli_saddr == function && sf_length(found.dli_sname) < 100)
    parts[0] = found.dli_sname;
  size_t n = 0;
  for (size_t i = 0; i < 2; i++)
    for (const char *text = parts[i]; *text; text++)
      what[n++] = *text;
  __sf_refuse(what, where);
}

SF_API void *__sf_clone(void *function, const char *where) {
  for (size_t i = place(function);; i = (i + 1) & mask) {
    if (likely(pairs[i].original == function))
      return pairs[i].hardened;
    if (!pairs[i].original)
      refuse_table(function, where);
  }
}
