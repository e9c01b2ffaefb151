/* Values that must not be read or computed twice: the first run records them, the second is given them; and calls that wait for V. */
#include "log.h"

struct sf_record *sf_record(struct sf_context *c, const char *name, uint64_t arguments, size_t length) {
  struct sf_record *r = sf_grow(&c->queue, sizeof *r + ((length + 7) & ~7ull));
  *r = (struct sf_record){.name = name, .arguments = arguments, .length = (uint32_t)length, .run = c->runs};
  return r;
}

/* The first run's next record, which must be of this name; its arguments are the caller's to compare. */
static struct sf_record *replay_next(struct sf_context *c, const char *name, uint64_t arguments) {
  if (unlikely(c->queue_cursor >= c->queue.used))
    sf_differ_name("only the second run calls", name, 0, arguments);
  struct sf_record *r = (struct sf_record *)(c->queue.base + c->queue_cursor);
  /* Names are compared as text: the same function may be named by several modules. */
  if (unlikely(r->name != name && (sf_length(r->name) != sf_length(name) || !sf_equal(r->name, name, sf_length(name)))))
    sf_differ_name("the runs call different functions: second", name, 0, 0);
  c->queue_cursor += sizeof *r + ((r->length + 7) & ~7ull);
  return r;
}

struct sf_record *sf_replay(struct sf_context *c, const char *name, uint64_t arguments) {
  struct sf_record *r = replay_next(c, name, arguments);
  if (unlikely(r->arguments != arguments))
    sf_differ_name("the runs call with different arguments", name, r->arguments, arguments);
  return r;
}

bool sf_is_of_program(const char *name) {
  extern const char __executable_start[] __attribute__((visibility("hidden"))), _end[] __attribute__((visibility("hidden")));
  return (uintptr_t)name >= (uintptr_t)__executable_start && (uintptr_t)name < (uintptr_t)_end;
}

struct sf_record *sf_kept(struct sf_context *c, const char *name, uint64_t arguments) {
  if (likely(c->kept_cursor >= c->kept.used))
    return NULL;
  struct sf_record *r = (struct sf_record *)(c->kept.base + c->kept_cursor);
  if (!sf_is_of_program(r->name))
    r->name = name; /* a fault was there */
  if (sf_length(r->name) != sf_length(name) || !sf_equal(r->name, name, sf_length(name)) || r->arguments != arguments)
    /* What the failed run has done outside cannot be undone, and this run wants something else. */
    sf_stop("a retry calls something else than the run that failed", "none: the fault had an effect outside; restart the program");
  size_t bytes = sizeof *r + ((r->length + 7) & ~7ull);
  c->kept_cursor += bytes;
  struct sf_record *copy = sf_grow(&c->queue, bytes);
  sf_copy(copy, r, bytes);
  copy->run = c->runs;
  return copy;
}

/* The result, and as data what errno is then. */
#define ONCE_BYTES sizeof(uint64_t)

SF_API int __sf_once(const char *name, uint64_t arguments, uint64_t *result) {
  struct sf_context *c = __sf_own;
  struct sf_record *r = __sf_tls.phase == SF_E1 ? sf_kept(c, name, arguments) : sf_replay(c, name, arguments);
  if (!r) {
    sf_record(c, name, arguments, ONCE_BYTES)->once = 1;
    return 0;
  }
  *result = r->result;
  *__errno_location() = (int)*(uint64_t *)sf_data(r);
  return 1;
}

SF_API void __sf_once_done(uint64_t result) {
  struct sf_context *c = __sf_own;
  /* The record that __sf_once has just made: a call of class once cannot contain another. */
  struct sf_record *r = (struct sf_record *)(c->queue.base + c->queue.used - ONCE_BYTES) - 1;
  r->result = result;
  *(uint64_t *)sf_data(r) = (uint64_t)*__errno_location();
}

static inline uint64_t look_replay(const void *at, size_t size) {
  return size == 8   ? *(const volatile uint64_t *)at
         : size == 4 ? *(const volatile uint32_t *)at
         : size == 2 ? *(const volatile uint16_t *)at
                     : *(const volatile uint8_t *)at;
}

/* What is read once: where, and, in the top byte, how much of it. */
#define ASKED_SIZE 56
static inline uint64_t asked_replay(const void *at, size_t size) { return (uint64_t)at ^ (uint64_t)size << ASKED_SIZE; }

/* Place and width are told apart: in one number they would be neither. */
static SF_COLD _Noreturn void asked_differs(const char *place, const char *width, uint64_t was, uint64_t is) {
  uint64_t at = (1ull << ASKED_SIZE) - 1;
  if ((was ^ is) & at)
    sf_differ(place, is & at, was & at, is & at);
  sf_differ(width, is & at, was >> ASKED_SIZE, is >> ASKED_SIZE);
}

/* Behind the reads, by the registers that they had: what came from elsewhere would be both runs' value. */
static inline void read_as_asked(const struct sf_record *r, const void *at, size_t size) {
  sf_opaque(at); /* or what was computed from them before would be compared */
  sf_opaque(size);
  if (!SF_CHECKED(PLACES))
    return;
  uint64_t was = *(volatile const uint64_t *)&r->arguments;
  if (unlikely(was != asked_replay(at, size)))
    asked_differs("a word was read elsewhere than asked", "more or fewer bytes were read than asked", was, asked_replay(at, size));
}

static struct sf_record *replay_read(struct sf_context *c, const char *name, uint64_t asked) {
  struct sf_record *r = replay_next(c, name, asked);
  if (unlikely(r->arguments != asked))
    asked_differs("the runs read different places", "the runs read words of different width", r->arguments, asked);
  return r;
}

/* Each run has a value that was read for it: one that goes wrong on its way is another than the other run's. */
SF_API uint64_t __sf_load_once(const void *at, size_t size) {
  struct sf_context *c = __sf_own;
  if (__sf_tls.phase == SF_E2)
    return replay_read(c, "a volatile load", asked_replay(at, size))->result;
  struct sf_record *r = sf_record(c, "a volatile load", asked_replay(at, size), 0);
  for (;;) {
    uint64_t first = look_replay(at, size), second = SF_CHECKED(PLACES) ? look_replay(at, size) : first, difference = first ^ second;
    r->result = second;
    sf_opaque(difference); /* or the compiler would take one for the other */
    read_as_asked(r, at, size);
    if (likely(difference == 0))
      return first;
  }
}

/* An atomic operation on what this handler has already stored to: 1, and it is a store like others, logged and done in both runs. Else
   it is done once (`atomics-once`), since the first run's effect is not put back. */
SF_API int __sf_atomic_logged(const void *at, size_t size) {
  struct sf_context *c = __sf_own;
  if (__sf_tls.phase == SF_E2)
    return (int)sf_replay(c, "an atomic operation", (uint64_t)at)->result;
  struct sf_record *r = sf_record(c, "an atomic operation", (uint64_t)at, 0);
  return (int)(r->result = sf_has_stored(c, (uintptr_t)at, size));
}

/* With `atomics-once`: what the first run's operations leave stays, so the second run is given what the first has read before them, and
   so is a retry. What the run has stored plainly is its own, and read from memory. */
SF_API uint64_t __sf_load_mixed(const void *at, size_t size) {
  struct sf_context *c = __sf_own;
  static const char name[] = "a plain load of what an atomic operation changes";
  enum { INVERSE, OWN, WORDS };
  struct sf_record *r = __sf_tls.phase == SF_E1 ? sf_kept(c, name, asked_replay(at, size)) : replay_read(c, name, asked_replay(at, size));
  if (r) {
    uint64_t *data = (uint64_t *)sf_data(r);
    if (unlikely(data[INVERSE] != ~r->result))
      sf_differ("what a run has read has changed in the list of what it read", (uint64_t)at, data[INVERSE], ~r->result);
    return data[OWN] ? look_replay(at, size) : r->result;
  }
  r = sf_record(c, name, asked_replay(at, size), WORDS * sizeof(uint64_t));
  r->once = 1;
  uint64_t *data = (uint64_t *)sf_data(r), first, difference;
  data[OWN] = sf_has_stored(c, (uintptr_t)at, size);
  do { /* as __sf_load_once */
    first = look_replay(at, size);
    r->result = SF_CHECKED(PLACES) ? look_replay(at, size) : first;
    difference = first ^ r->result;
    sf_opaque(difference);
  } while (unlikely(difference != 0));
  read_as_asked(r, at, size);
  data[INVERSE] = ~r->result;
  return first;
}

SF_API void __sf_defer(const char *name, void *function, size_t count, const uint64_t *arguments) {
  struct sf_context *c = __sf_own;
  if (__sf_tls.phase == SF_E1) {
    struct sf_deferred *d = sf_grow(&c->deferred, sizeof *d);
    *d = (struct sf_deferred){.name = name, .function = function, .count = count};
    for (size_t i = 0; i < count; i++)
      d->arguments[i] = arguments[i];
    return;
  }
  struct sf_deferred *d = (struct sf_deferred *)c->deferred.base + c->deferred_cursor;
  if (unlikely(c->deferred_cursor >= c->deferred.used / sizeof *d))
    sf_differ_name("only the second run calls", name, 0, 0);
  if (unlikely(d->function != function || d->count != count))
    sf_differ_name("the runs call different functions: second", name, (uint64_t)d->function, (uint64_t)function);
  for (size_t i = 0; i < count; i++)
    if (unlikely(d->arguments[i] != arguments[i]))
      sf_differ_name("the runs call with different arguments", name, d->arguments[i], arguments[i]);
  c->deferred_cursor++;
}
