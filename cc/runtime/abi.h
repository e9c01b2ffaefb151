/*
 * The contract between hardened code, as the pass writes it, and the runtime.
 *
 * Its numbers are in layout.h, which the pass includes. The pass emits
 * the hot path of a store inline, from the first fields of struct sf_tls; everything else is a call.
 *
 * One logged word, in both runs:
 *
 *     key  = word address << 17 | epoch << 8       word address: a multiple of 8 below 2^47, so 44 bits above bit 20
 *     slot = table + (word address & index_mask)
 *     if slot ^ (key | 0xff) has a bit of ~0xff | need:                     a whole word: if slot is not key | 0xff
 *       if slot = key - delta | need, the first run's tag in the second run: slot = key | need, mask = need, else
 *       __sf_slow8 (whole words) or __sf_slow_part
 *     A whole word has no mask: if slot | delta = key | 0xff, slot |= delta, else __sf_slow8.
 *     store
 *     if slot ^ (key | 0xff) has a bit of ~0xff | need: __sf_check     it must lie in another slot
 *
 * `need` holds one bit for each byte of the word that the store writes. The low byte of a tag holds the bytes that are
 * logged (E1), or seen again (E2), so one comparison answers "this word, this run, these bytes".
 *
 * A store whose address is not a multiple of its size (a packed structure, a cast pointer) may reach into the next word.
 * Its "word address" keeps the low bits that show it, its key then has one of bits 17 to 19, and no slot ever matches:
 * it takes the slow way before and after, where it is cut in two.
 *
 * Invariants
 *  1. The low 8 bits of `epoch_key` are zero, and so are those at and above bit 17; bits 17 to 19 of a tag are zero.
 *  2. Epochs below 8 are never used: a zeroed table holds nothing, and `need` of such a store, up to bit 10, cannot turn
 *     a key's epoch into 0.
 *  3. Epochs of first runs are even, so delta is the bit in which the second run's differs.
 *  4. Clones have no red zone: the calls of inline assembly push onto their stack.
 */
#ifndef STEADFAST_ABI_H
#define STEADFAST_ABI_H

#include "layout.h"

#include <stddef.h>
#include <stdint.h>

enum sf_phase { SF_OUTSIDE = 0, SF_E1 = 1, SF_E2 = 2 };

/* First fields: read by inline code of every store. */
struct sf_tls {
  uint64_t *table; /* tags */
  uint64_t index_mask; /* (slots - 1) << 3 */
  uint64_t epoch_key;  /* epoch << SF_EPOCH_SHIFT */
  uint64_t phase;      /* enum sf_phase */
  /* From here on for the runtime alone (store.S). */
  struct sf_entry *cursor; /* the next entry of the log */
  struct sf_entry *limit;  /* cursor < limit: store.S may make an entry; 0 in the second run */
  uint64_t sum;            /* over entries as they were made */
  uintptr_t stack_low;     /* frames of the run lie at stack_low + [0, stack_length) */
  uint64_t stack_length;
  uint64_t delta; /* key - delta is the first run's key: 1 << SF_EPOCH_SHIFT in the second run, 0 in the first */
  uint64_t key_whole; /* epoch_key | 0xff: what a store of a whole word looks for */
  uint64_t partial;   /* not 0: some entry is less than a whole word */
  uint64_t kept[8];   /* callee-saved registers, return address and stack pointer of the call of __sf_begin */
  struct sf_entry *grows; /* the cursor, while the last entry may take in more bytes of its word */
  /* --recover: while store.S may make an entry in both logs, the second one's (recover.c), twice; and where either is full. */
  struct sf_shadow *shadow, *shadow_again;
  struct sf_entry *shadow_end;
};
#define SF_LIES(FIELD, OFFSET) _Static_assert(offsetof(struct sf_tls, FIELD) == OFFSET, "known to the pass and to store.S (layout.h)")
SF_LIES(table, SF_TLS_TABLE);
SF_LIES(index_mask, SF_TLS_INDEX_MASK);
SF_LIES(epoch_key, SF_TLS_EPOCH_KEY);
SF_LIES(phase, SF_TLS_PHASE);
SF_LIES(cursor, SF_TLS_CURSOR);
SF_LIES(limit, SF_TLS_LIMIT);
SF_LIES(sum, SF_TLS_SUM);
SF_LIES(stack_low, SF_TLS_STACK_LOW);
SF_LIES(stack_length, SF_TLS_STACK_LENGTH);
SF_LIES(delta, SF_TLS_DELTA);
SF_LIES(key_whole, SF_TLS_KEY_WHOLE);
SF_LIES(partial, SF_TLS_PARTIAL);
SF_LIES(kept, SF_TLS_KEPT);
SF_LIES(grows, SF_TLS_GROWS);
SF_LIES(shadow, SF_TLS_SHADOW);
SF_LIES(shadow_again, SF_TLS_SHADOW_AGAIN);
SF_LIES(shadow_end, SF_TLS_SHADOW_END);
#undef SF_LIES
/* The runtime is a program's, so its thread-local memory is known when it is linked: no register holds its base, which could change
   and make of one field another. Not in what shared libraries have of it (Makefile: PLAIN). */
#ifndef SF_TLS_MODEL
#define SF_TLS_MODEL "initial-exec"
#endif
extern __thread struct sf_tls __sf_tls __attribute__((tls_model(SF_TLS_MODEL)));

/* One for each handler, constant, written by the pass. */
struct sf_handler {
  const char *name;
  const char *where; /* file:line */
  uint64_t id;       /* hash of name and file: mixed into the gates */
  uint64_t flags;    /* SF_HANDLER_*, and the bytes of its arguments, at most, from bit 8 on */
};

/* One for each function that hardened code may reach through a pointer (section sf_clones). */
struct sf_clone {
  void *original;
  void *hardened;
};

/* Driver of a handler, in this order: begin, run, mid, run, end. Where begin gives 1, the second run comes next (split.c,
   async.c). A result of up to 64 bits is passed as it is, a longer one as __sf_hash of it. The
   driver keeps a frame pointer: what lies below it is a run's. */
int __sf_begin(const struct sf_handler *handler);
int __sf_mid(const struct sf_handler *handler, uint64_t result); /* 1: the second run comes later, elsewhere */
void __sf_end(const struct sf_handler *handler, uint64_t result);
/* In place of all these, of a handler that a run calls. */
void __sf_nested(const struct sf_handler *handler);
uint64_t __sf_hash(const void *bytes, size_t length);
void __sf_edge_string(const char *message);
void __sf_edge_line(const char *message);
void __sf_edge_crlf(const char *message);
void __sf_stream(void);
void __sf_output(const void *bytes, uint64_t length, uint64_t skip); /* of a policy; skip: not this time */
/* Outside handlers. */
void __sf_output_outside(const void *bytes, uint64_t length, uint64_t skip);
void *__sf_provenance_move(void *to, const void *from, size_t length);
void *__sf_provenance_realloc(void *old, size_t size);

/* Stores. */
/* Called by inline assembly of the pass, with registers of their own (store.S): __sf_slow8,
   __sf_slow_part, __sf_check, with --recover __sf_before and __sf_astray. The mask of a slot is a byte; they lie behind the tags, at table + index_mask + 8. */
void __sf_log(const void *bytes, size_t length);
void __sf_ready(const void *bytes, size_t length); /* --recover: before the store */
/* There in objects that were built without --recover, whose stores do not ask. */
extern const char __sf_unguarded[] __attribute__((weak));
void __sf_logged(const void *bytes, size_t length);
/* Loops that fill a range (pass/ranges.cpp): a store at `at`, which none of their open piece is. `next` is where the last one has ended, `id` names
   the piece, or is 0. Gives where the new piece ends, and its name. */
struct sf_piece {
  uint64_t limit, id;
};
struct sf_piece __sf_range_next(uint64_t at, uint64_t next, uint64_t id, uint64_t size);
void __sf_range_end(uint64_t next, uint64_t id);
void *__sf_memcpy(void *to, const void *from, size_t length);
void *__sf_memmove(void *to, const void *from, size_t length);
void *__sf_memset(void *to, int byte, size_t length);

/* Loads, with --validate=async: __sf_load (store.S), and before calls that read memory: */
void __sf_reads(const void *bytes, size_t length);
void __sf_reads_string(const char *string, size_t most);
void __sf_reads_search(const void *bytes, int byte, size_t length);
void __sf_trace(const void *bytes, size_t length, const char *where); /* --find-nondeterminism: after each store */

/* Calls. */
void *__sf_clone(void *function, const char *where);
_Noreturn void __sf_refuse(const char *what, const char *where);
/* A volatile load: the second run is given the first run's value. */
uint64_t __sf_load_once(const void *at, size_t size);
/* With atomics-once, a plain load of what atomic operations change: the same, but where this run has stored itself. */
uint64_t __sf_load_mixed(const void *at, size_t size);
/* With atomics-once: whether the operation is a store like others, as this run has stored there. */
int __sf_atomic_logged(const void *at, size_t size);
/* Calls of class once: before E1's call returns 0, and then _done records the result; in E2 returns 1 and the result. */
int __sf_once(const char *name, uint64_t arguments, uint64_t *result);
void __sf_once_done(uint64_t result);
/* Calls of class defer: the function with up to six integer or pointer arguments. */
void __sf_defer(const char *name, void *function, size_t count, const uint64_t *arguments);

#endif
