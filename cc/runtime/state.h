/*
 * State at rest: where objects with a copy (`dup`) or a checksum (`crc`) lie, and where their redundancy does.
 *
 *     0x1400_0000_0000   memory with a copy            0x2400_0000_0000   its copies
 *     0x1800_0000_0000   memory with checksums         0x3000_0000_0000   a checksum for each 64 bytes
 *     section sf_dup     variables with a copy         their copies, like all copies, 2^44 bytes further on
 *     section sf_crc     variables with checksums      theirs, like all checksums, at CHECKS + address / 16
 *
 * The first run of a handler works on the objects, the second on the copies: hardened code adds `shift` to an address that
 * has a copy, 0 in the first run, SF_COPY in the second. Pointers are stored as addresses of objects in both, so the runs
 * compare without translation; but the cell that the second run loads a pointer from is its own, and so is all that it
 * computes from it.
 *
 * Invariants
 *  1. Addresses are those of objects (home) everywhere in the log; a copy's address is only ever dereferenced.
 *  2. Outside handlers an object and its copy are equal, but for the moment in which one thread writes both.
 *
 * Shared with cc/pass/state.cpp: struct sf_places, and what layout.h has.
 */
#ifndef STEADFAST_STATE_H
#define STEADFAST_STATE_H

#include "runtime.h"

#define SF_DUP_BASE (5ull << 42) /* not 1 << 44: there lie the copies of variables of programs that begin at 4 MiB */
#define SF_CRC_BASE (3ull << 43)
/* Half of what the layout has room for would do; reserved, not used: 64 GiB of each kind. */
#define SF_KIND_BYTES (1ull << 36)
#define SF_COPY (1ull << SF_COPY_SHIFT)
#define SF_CHECKS (3ull << 44)
#define SF_CELL 64ull /* one line of the cache: what is read together is checked together */

struct sf_places {
  uintptr_t dup_at, dup_length; /* variables; memory is known by its address */
  uintptr_t crc_at, crc_length;
  char rest[4096 - 4 * sizeof(uintptr_t)]; /* a page of its own, read-only once it is known */
};
_Static_assert(offsetof(struct sf_places, dup_length) == SF_PLACES_DUP_LENGTH, "offset known to the pass");
_Static_assert(offsetof(struct sf_places, crc_at) == SF_PLACES_CRC_AT, "offset known to the pass");
_Static_assert(offsetof(struct sf_places, crc_length) == SF_PLACES_CRC_LENGTH, "offset known to the pass");
extern struct sf_places __sf_places __attribute__((weak));

/* Linked into programs built with --state; elsewhere these are not there. */
static inline bool sf_state(void) { return &__sf_places != NULL; }

static inline bool sf_is_dup(uintptr_t p) { return p >> SF_KIND_SHIFT == SF_KIND_DUP || p - __sf_places.dup_at < __sf_places.dup_length; }
static inline bool sf_is_crc(uintptr_t p) { return p >> SF_KIND_SHIFT == SF_KIND_CRC || p - __sf_places.crc_at < __sf_places.crc_length; }

/* A copy's address as its object's. */
static inline uintptr_t sf_home(const void *p) {
  uintptr_t at = (uintptr_t)p;
  return unlikely(sf_state()) && sf_is_dup(at - SF_COPY) ? at - SF_COPY : at;
}
/* Where this run keeps an object. */
static inline void *sf_own(const void *p) {
  return unlikely(sf_state()) && __sf_tls.phase == SF_E2 && sf_is_dup((uintptr_t)p) ? (char *)p + SF_COPY : (void *)p;
}

/* formats.c: a list of arguments, its strings the run's own. The code that made it knew of no second run. */
struct sf_list {
  __builtin_va_list list;
  char saved[6 * 8 + 8 * 16] __attribute__((aligned(16)));
  char stack[64 * 8 + 8] __attribute__((aligned(16))); /* a long double lies at a multiple of 16: as it does in the list */
};
void sf_own_strings(struct sf_list *own, const char *how, __builtin_va_list list);
typedef __typeof__(&(*(__builtin_va_list *)0)[0]) sf_list_pointer;
static inline sf_list_pointer sf_own_list(struct sf_list *own, const char *how, sf_list_pointer list) {
  if (likely(!sf_state()))
    return list;
  sf_own_strings(own, how, list);
  return own->list;
}
#define OWN_LIST(how, list) \
  struct sf_list own_list;  \
  list = sf_own_list(&own_list, how, list)

bool sf_state_stays_wrong(uintptr_t at, size_t length);
/* state.c: the program has written there. */
void sf_state_written(uintptr_t at, size_t length);
/* keeps.c: where an object first differs from its copy, but for what a library keeps of it; LENGTH if nowhere. */
size_t sf_difference(uintptr_t at, size_t length);
static inline bool sf_same(uintptr_t at, size_t length) {
  return likely(sf_equal((void *)at, (void *)(at + SF_COPY), length)) || sf_difference(at, length) == length;
}
void sf_kept_end(struct sf_span block);

/* Written by the pass, one for each variable (section sf_objects). */
struct sf_object_name {
  void *at;
  uint64_t length;
  const char *name;
};

/* heap.c */
enum sf_kind { SF_DUP, SF_CRC };
static inline bool sf_is_heap(const void *p) {
  return (uintptr_t)p - SF_DUP_BASE < SF_KIND_BYTES || (uintptr_t)p - SF_CRC_BASE < SF_KIND_BYTES;
}
void *sf_heap_take(enum sf_kind, size_t alignment, size_t bytes);
void sf_heap_free(void *);
size_t sf_heap_size(const void *);
/* The block that an address lies in; nothing for one that was never given out. */
struct sf_span sf_heap_block(uintptr_t);
uintptr_t sf_heap_end(enum sf_kind); /* all that was ever given out lies below */

/* Any object: the block or, as a whole, the section. */
struct sf_span sf_object(uintptr_t);

static inline uint32_t *sf_check_of(uintptr_t p) { return (uint32_t *)(SF_CHECKS + (p / SF_CELL) * sizeof(uint32_t)); }
/* The scrubber's checksums, by 256 bytes of objects with copies: small enough that what is written often does not take
   the checksum from what is not; five bytes each, 2 % of the state. The mark says that nothing was written since. */
#define SF_GRAIN 256ull
#define SF_MARKS (SF_CHECKS + (1ull << 43))
#define SF_SUMS (SF_MARKS + (1ull << 40))
static inline volatile uint8_t *sf_mark_of(uintptr_t p) { return (volatile uint8_t *)(SF_MARKS + p / SF_GRAIN); }
static inline uint32_t *sf_sum_of(uintptr_t p) { return (uint32_t *)(SF_SUMS + p / SF_GRAIN * sizeof(uint32_t)); }

/* state.c: outside handlers, around what reads and writes objects. */
void __sf_state_read(const void *, size_t);
void __sf_state_give(const void *);
void __sf_state_write(const void *, size_t);
void __sf_state_room(const void *, size_t);
void __sf_state_written(const void *, size_t);
uint32_t sf_cell_crc(uintptr_t cell);
struct sf_span sf_cell_span(uintptr_t cell);
/* A verdict about an object, in a handler or outside; returns when it could be repaired. */
void sf_state_wrong(const char *what, uintptr_t at, uint64_t first, uint64_t second);
/* fail.c: an event about state at rest; action is "stopped", "repaired" or "found". */
void sf_tell_state(const char *what, uintptr_t at, uint64_t first, uint64_t second, const char *action);
_Noreturn void sf_leave(int status);

#endif
