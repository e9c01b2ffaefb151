/*
 * Modes: what a program may be linked with beside the algorithm. Each is a table of operations that comes with its file: without its
 * flag the table is not there, and nothing of the mode is linked. A table's name is what the driver asks the linker for
 * (cc/driver/src/command.rs); that of state at rest is asked for by hardened code (pass/state.cpp).
 */
#ifndef STEADFAST_MODES_H
#define STEADFAST_MODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sf_context;
struct sf_entry;
struct sf_handler;
struct sf_put;
struct sf_range;

/* --recover (recover.c): a second log, and a second record of where the tables of the runtime are. Operations of a thread are called where
   c->shadow says that it has both. */
struct sf_recover {
  void (*thread)(void);
  void (*move)(struct sf_context *); /* to another core */
  void (*done)(struct sf_context *);
  void (*shadow_thread)(struct sf_context *);
  void (*shadow_thread_end)(struct sf_context *);
  void (*shadow_begin)(struct sf_context *);
  void (*shadow_opened)(struct sf_context *); /* I has ended */
  uint64_t (*shadow_event)(struct sf_context *); /* the last event of which it has */
  void (*shadow_word)(struct sf_context *, uint64_t where, const struct sf_entry *first);
  void (*shadow_range)(struct sf_context *, const struct sf_range *);
  uint32_t (*shadow_range_crc)(const struct sf_range *, const uint8_t *old);
  void (*shadow_locks)(struct sf_context *, size_t used);
  void (*shadow_places)(struct sf_context *); /* tables have moved */
  void (*shadow_places_mend)(struct sf_context *);
  const char *(*shadow_mend)(struct sf_context *); /* the log, from the one that holds; or why not */
  bool (*shadow_has_entry)(struct sf_context *, uintptr_t at);
  bool (*shadow_has_range)(struct sf_context *, size_t index, uintptr_t at, size_t length);
  bool (*shadow_even)(struct sf_context *); /* as many words as the first */
  bool (*shadow_ranges_hold)(struct sf_context *);
  struct sf_put (*shadow_put_back)(struct sf_context *); /* as sf_put_back */
};
extern const struct sf_recover __sf_recover __attribute__((weak));
static inline bool sf_recovers(void) { return &__sf_recover != NULL; }

/* --other-core (second_core.c). */
struct sf_second_core {
  void (*ready)(struct sf_context *); /* before a handler */
  void (*go)(struct sf_context *);    /* returns on another core */
  void (*back)(struct sf_context *);  /* returns in the thread itself, if it was away */
  void (*move)(struct sf_context *);
  void (*thread_end)(struct sf_context *);
};
extern const struct sf_second_core __sf_second_core __attribute__((weak));
static inline bool sf_second_core(void) { return &__sf_second_core != NULL; }

/* --validate=async (async.c; reads.c: what is read in a handler). */
struct sf_async {
  void (*begin)(struct sf_context *, const struct sf_handler *);
  void (*publish)(struct sf_context *); /* the first run has ended */
  void (*before_effects)(struct sf_context *);
  void (*hold)(void); /* with --hold-output: until all is validated */
  __attribute__((noreturn)) void (*validated)(struct sf_context *);
  uint64_t (*later)(void); /* handlers that have begun since, without --hold-output */
  void (*reads)(const void *, size_t);
  void (*reads_string)(const char *, size_t most);
  void (*reads_format)(const char *how, __builtin_va_list);
};
extern const struct sf_async __sf_async __attribute__((weak));
static inline bool sf_async(void) { return &__sf_async != NULL; }

/* --state (state.c, scrub.c, heap.c, outside.c). Whether it is there tells state.h. */
struct sf_state {
  void (*begin)(struct sf_context *); /* not while the scrubber looks twice */
  void (*mid)(struct sf_context *);
  void (*publish)(struct sf_context *);
  void (*put_back)(struct sf_context *);
  void (*touch)(const void *, size_t);
  void (*give)(const void *);
  void (*thread_end)(void);
  bool (*repair)(void); /* objects and copies that differ, made the same where a checksum tells which is right; whether all are now */
  void *(*take_dup)(size_t);
  void *(*take_crc)(size_t);
  void (*free)(void *);
  size_t (*size)(const void *);
};
extern const struct sf_state __sf_state __attribute__((weak));

#endif
