/* What a program has once, and each of its threads: level, contexts. */
#include "log.h"

#include <stdatomic.h>

SF_API __thread struct sf_tls __sf_tls;
__thread struct sf_context *__sf_own;
struct sf_context *_Atomic sf_contexts;
/* Objects of another version of the contract do not link. */
SF_API const int SF_ABI_NAME = SF_ABI;

/* store.S. Named here, so that a link that takes this file takes that one: what inline assembly calls is not seen by a
   link-time optimiser. */
extern void __sf_slow8(void), __sf_slow_part(void), __sf_check(void);
SF_API void (*const __sf_stores[])(void) = {__sf_slow8, __sf_slow_part, __sf_check};

/* --protect: a program has one, and its link the same. Modules with hardened code say theirs in this section (pass/plugin.cpp). */
extern const uint64_t __start_sf_levels[] __attribute__((weak, visibility("hidden")));
extern const uint64_t __stop_sf_levels[] __attribute__((weak, visibility("hidden")));

__attribute__((constructor(103))) static void one_level(void) {
  const uint64_t *from = __start_sf_levels, *to = __stop_sf_levels;
  sf_opaque(from);
  sf_opaque(to);
  for (; from != to; from++)
    if (*from != (SF_BEYOND ? SF_LEVEL_FULL : SF_LEVEL_SEI))
      sf_stop(SF_BEYOND ? "a program needs one --protect for all its files, found a file with sei and a link with full"
                        : "a program needs one --protect for all its files, found a file with full and a link with sei",
              "give all files and the link the same --protect");
  if (!SF_BEYOND && (sf_recovers() || sf_async()))
    sf_stop("--recover and --validate=async rest on checks that --protect=sei leaves out, found them together",
            "leave --protect=sei out, or the other flag");
}

/* One of a thread that has ended, or a new one. Contexts are never unmapped: others look at their counters. */
static struct sf_context *context_get(void) {
  for (struct sf_context *c = atomic_load(&sf_contexts); c; c = c->next) {
    uint64_t dead = 0;
    if (atomic_compare_exchange_strong(&c->alive, &dead, 1))
      return c;
  }
  struct sf_context *c = sf_map(sizeof *c);
  atomic_store(&c->alive, 1);
  c->next = atomic_load(&sf_contexts);
  while (!atomic_compare_exchange_weak(&sf_contexts, &c->next, c))
    ;
  return c;
}

static SF_COLD struct sf_context *context_new(void) {
  struct sf_context *c = context_get();
  c->entries = sf_map(SF_WORDS * sizeof *c->entries);
  c->news = sf_map(SF_WORDS * sizeof *c->news);
  c->capacity = SF_WORDS;
  sf_table_new(c, SF_SLOTS);
  c->epoch = SF_EPOCH_FIRST;
  sf_gates_close(c, c->event);
  c->state = sf_state();
  sf_stack_bounds(&c->stack_low, &c->stack_high);
  c->stack_bytes = c->stack_high - c->stack_low;
  sf_provenance_thread(c);
  if (sf_recovers()) {
    __sf_recover.thread();
    __sf_recover.shadow_thread(c);
  }
  __sf_own = c;
  sf_thread_ends(c);
  return c;
}

struct sf_context *sf_context(void) {
  struct sf_context *c = __sf_own;
  return likely(c != NULL) ? c : context_new();
}

struct sf_context *sf_inside(const char *what) {
  if (unlikely(__sf_tls.phase == SF_OUTSIDE))
    sf_stop(what, "call it from a handler only");
  return __sf_own;
}

SF_API int sf_run(void) { return (int)__sf_tls.phase; }
SF_API uint64_t sf_committed(void) { return sf_context()->committed; }
