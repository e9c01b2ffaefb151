/*
 * The inside of the runtime: what its files share. Programs see include/steadfast/sei.h, the pass sees abi.h.
 *
 * Ground rules
 *  1. core.c, what log.h names, crc.c, fail.c and table.c call no library: they run while memory is being put back, and after a fault. (table.c asks
 *     one for a name, when the program ends.)
 *  2. Nothing here allocates from the program's heap. Buffers are mappings of their own, with a page that cannot be
 *     touched on either side.
 *  3. A check is never an assert: it is there in every build, and its failure path only makes system calls.
 *
 * One thread's context lives from its first handler to its end. At rest it holds 18 KiB of table, 9 KiB of log and one
 * page; after a handler that needed more, what was grown goes back.
 */
#ifndef STEADFAST_RUNTIME_H
#define STEADFAST_RUNTIME_H

#include "abi.h"
#include "modes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SF_API __attribute__((visibility("default")))
#define SF_COLD __attribute__((cold, noinline))
/* For AddressSanitizer (make SANITIZE=address,undefined): of a word that is read here a part may be no object's. */
#define SF_WHOLE_WORDS __attribute__((no_sanitize("address")))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Checks that the paper's rules do not have (docs/concepts/hardening.md, "Levels: the paper's rules, and what is beyond them").
   --protect=full has all of them; the runtime of --protect=sei is compiled with none (Makefile: LEVELS), so there they cost nothing.
   A sum, to find out what one of them costs. */
#define SF_INPUTS 1  /* inputs are what was received, and of streams none is handled twice (provenance.c) */
#define SF_OUTPUTS 2 /* what the kernel is handed is what handlers have sent (provenance.c) */
#define SF_PLACES 4  /* where it went what is put back, copied, entered in the log or added to a table */
#define SF_FRAMES 8  /* the bounds of the run's frames are kept twice */
#define SF_LOCKS 16  /* between V and their release the list of locks has its sum */
#define SF_ALL 31
#ifndef SF_BEYOND
#define SF_BEYOND SF_ALL
#endif
#define SF_CHECKED(WHAT) ((SF_BEYOND & SF_##WHAT) != 0)

/* The compiler must not carry what it knows about a value across this line: a check that follows looks again. */
#define sf_opaque(x) __asm__ volatile("" : "+r"(x))
#define sf_reload() __asm__ volatile("" ::: "memory")

/* A word of the first run's log: what was there before the first write (O of the paper). */
struct sf_entry {
  uint64_t where; /* address | bytes that are not meant << 56: a whole word is its address */
  uint64_t old;
};

/* What came of putting memory back: bits that do not show it, and the sum of the entries that were. */
struct sf_put {
  uint64_t wrong, sum;
};

/* A store, as inline code has called the runtime for it (store.S). */
struct sf_store {
  uint64_t frame;
  uint64_t need; /* bytes, one bit each; from bit 8 on of the next word */
  uint64_t at;
};

/* The whole word, of which a part may be another object's, or lie behind the end of a block: an aligned word never crosses a
   page, and what is not meant is masked. */
SF_WHOLE_WORDS static inline uint64_t sf_live(uintptr_t word) { return *(volatile uint64_t *)word; }

/* A bulk write: offset into the arena, where first O and then N lie. */
struct sf_range {
  uintptr_t at;
  size_t length;
  size_t old;   /* arena offset of O; N follows at old + length */
  size_t after; /* words logged before it: orders ranges and words */
  uint32_t crc; /* of O, with --recover */
  uint32_t room; /* of a loop that is under way: bytes of O, of which `length` are not yet known */
};

struct sf_buffer {
  uint8_t *base;
  size_t size;
  size_t used;
  size_t idle; /* handlers since most of it was last needed */
};

/* Results that the second run is given: header, then data bytes, padded to 8. */
struct sf_record {
  const char *name;
  uint64_t arguments;
  uint64_t result;
  uint32_t length;
  uint32_t once; /* cannot be asked again: a retry is given this one */
  uint64_t run;  /* c->runs: what lies behind the last may be of an earlier one */
};

struct sf_deferred {
  const char *name;
  void *function;
  uint64_t arguments[6];
  size_t count;
  uint64_t last; /* 1: after the locks are released; 2: and then not any more */
  size_t data; /* 0, or 1 + offset into the queue's bytes for what the first argument points to */
};

/* A lock that this thread holds, with how often the program has locked it. 0: unlocked by the program, kept until V. */
struct sf_lock {
  void *lock;
  uint32_t kind;
  uint32_t count;       /* of the run in progress */
  uint32_t count_begin; /* when the handler began */
  uint32_t count_first; /* after the first run */
  uint32_t held;        /* times that it is really locked */
  uint32_t fresh;       /* taken by this handler */
  uint32_t made;        /* initialised by this handler: not really locked before its end */
  uint64_t not_lock;
  void *also;
};

struct sf_message {
  const uint8_t *bytes;
  size_t length;
  uint32_t crc;
  uint32_t kind;
};

/* Checked by the program; taken at the edge; a line that was. */
enum sf_message_kind { SF_CHECKED, SF_EDGE, SF_EDGE_LINE, SF_EDGE_CRLF };

struct sf_part {
  const uint8_t *bytes;
  size_t length;
  uint32_t crc_first; /* message checksum up to here, first run */
  uint32_t crc;       /* the same, second run */
  uint32_t last;      /* the message ends here */
  uint32_t kind;
};
/* Of sf_output_append; of a policy, a message of its own; of a policy, with bytes that are not known yet. */
enum sf_part_kind { SF_PART, SF_PART_NAMED, SF_PART_UNKNOWN };

struct sf_span {
  uintptr_t at;
  size_t length;
};

/* Words that a handler has asked to be left alone. */
struct sf_ignored {
  uintptr_t at;
  size_t length;
  size_t after; /* so many ranges of the run */
};

#define SF_SLOTS 2048  /* 16 KiB of tags, 2 KiB of masks */
#define SF_WORDS \
  384   /* 9 KiB of log. Fewer than a fifth of the slots: with random addresses one word in eleven at most is
                          not in its home slot. All of it stays below 30 KiB a thread. */
#define SF_IDLE 1000   /* small handlers after which a grown log shrinks: growing costs a few faults a page */
#define SF_KEPT 65536  /* bytes of a buffer that are kept while less is needed: 16 pages */
#define SF_MESSAGES 8  /* inputs of one handler; more are refused */
#define SF_RETRIES 3
#define SF_HOLDS 16    /* locks of a thread that others can see; what is beyond has an unknown holder (waits.c) */
#define SF_IGNORED 8   /* sf_ignore ranges of one handler */

/* What comes first, up to `locks`, cc/tests/faults.c repeats, to strike it. */
struct sf_context {
  /* Checking barrier: odd while a handler runs. Written by its thread, read by all. */
  _Atomic uint64_t counter;
  struct sf_context *next;
  _Atomic uint64_t alive;

  const struct sf_handler *handler;
  uint64_t event; /* handlers begun */
  uint64_t committed;
  uint64_t gate_enter, gate_leave; /* the ends of I, R, V and of E1, E2 (gates.h: end_phase) */

  struct sf_entry *entries;
  uint64_t *news; /* N, by the same index */
  size_t count;   /* when the first run ended; before, sf_tls.cursor tells */
  size_t capacity;
  size_t exempted;  /* words of the run's frames that the table shows */
  uint64_t idle;    /* handlers since the log was last larger than at rest */
  uint64_t epoch;

  uintptr_t stack_low, stack_high; /* the thread's stack; handlers run inside */

  struct sf_buffer arena;  /* bytes of ranges */
  struct sf_buffer ranges; /* struct sf_range */
  size_t range_cursor;
  struct sf_buffer queue; /* struct sf_record and data */
  size_t queue_cursor;
  struct sf_buffer deferred; /* struct sf_deferred */
  size_t deferred_cursor;
  bool leaves; /* what was deferred is on its way, or has left */
  bool full; /* less was taken than a handler gave to a socket: there was no room (libc.c) */
  uint32_t leaving; /* sum of the bytes that the second run has written, and where they go (libc.c) */
  struct sf_buffer locks; /* struct sf_lock, over handlers */
  struct sf_buffer parts; /* struct sf_part */
  size_t part_cursor;
  uint32_t crc_running;
  struct sf_buffer crcs; /* uint32_t, waiting for sf_crc_pop */
  size_t crc_cursor;
  bool crcs_asked; /* the program takes checksums */
  struct sf_buffer trace; /* --find-nondeterminism */
  size_t trace_cursor;

  size_t stack_bytes; /* stack_high - stack_low, once more */
  size_t run_bytes;   /* sf_tls.stack_length, once more */

  uint64_t state; /* in programs with copies or checksums of their state (state.h): 1, and 2 once they are renewed */
  struct sf_message messages[SF_MESSAGES];
  size_t message_count, message_cursor;
  struct sf_ignored ignored[SF_IGNORED];
  size_t ignored_count;

  struct sf_buffer waits; /* checking barrier */
  uint64_t barrier_event, barrier_since;

  uint64_t result_first;
  uint32_t mxcsr, mxcsr_first;
  int errno_begin;
  uint64_t retry;             /* times that this handler has begun again */
  uint64_t again;             /* begins again: not a new event */
  uint64_t gave_way;          /* times that this event was rolled back for others */
  uint64_t last[4];           /* the mismatch that led there */
  uint64_t rolling;           /* memory is being put back: what is noticed now is final */
  uint64_t affinity[16];      /* the cores that the program allows */
  struct sf_buffer kept;      /* records that cannot be asked again */
  size_t kept_cursor;
  size_t messages_outside;    /* taken by sf_input, before the handler */
  uint8_t *masks; /* for each slot, in E2: the bytes that the first run logged */
  uint64_t *tables_old[16]; /* grown out of, in use by checks until the handler ends */
  size_t tables_old_bytes[16];
  size_t tables_old_count;
  bool grown; /* a buffer has more than SF_KEPT */

  struct sf_partner *partner; /* second_core.c: runs the second run */
  uint64_t signals;           /* of the thread, while its partner runs */
  struct sf_provenance *provenance; /* provenance.c: in programs with the envelope */
  bool of_stream;         /* the input that comes next is one */
  size_t open; /* ranges of loops that are under way */
  struct sf_shadow *shadow;   /* recover.c: a second log */
  uint64_t runs;          /* first runs that have begun */
  void *taking;           /* locks.c: this lock is being taken, and may be ours and in no list */
  uint64_t taking_kind;
  int tid; /* locks.c: asked for when it is first needed */
  uint64_t locks_sum; /* of the list of locks, as V has seen it */
  struct sf_split *split; /* split.c: made by the first wait for a condition */
  uint64_t split_state;   /* SF_SPLIT_* */

  /* waits.c. Written by its thread, read by all. */
  _Atomic(const void *) waiting;         /* the lock that it waits for, while it holds others */
  _Atomic(const void *) holds[SF_HOLDS]; /* by the index of `locks` */
  _Atomic uint32_t ends, watched;        /* handlers with locks that have ended; somebody waits for the next */
  struct sf_context *walk_next, *walk_first;
  uint64_t walk;
  uint32_t walk_ends;
};

extern __thread struct sf_context *__sf_own __attribute__((tls_model(SF_TLS_MODEL)));

/* context.c */
struct sf_context *sf_context(void);
struct sf_context *sf_inside(const char *what); /* the context, or a refusal outside handlers */
extern struct sf_context *_Atomic sf_contexts;

/* memory.c; sf_equal: crc.c */
void sf_enlarge(struct sf_buffer *, size_t bytes); /* for sf_grow, below */
void *sf_map(size_t bytes);
void sf_unmap(void *base, size_t bytes);
void *sf_copy(void *to, const void *from, size_t length); /* gives the end of `to` */
bool sf_equal(const void *, const void *, size_t length);
size_t sf_length(const char *);
uint64_t sf_mix(uint64_t a, uint64_t b);
/* Of differences. */
extern const char sf_wrong_place[]; /* something has been written where no log knows */
extern const char sf_entry_elsewhere[];
extern const char sf_logs_differ[];

/* barrier_wait.c */
void sf_barrier_wait(void);

/* gates.c */
void sf_gates_close(struct sf_context *, uint64_t event); /* this one has been validated */

/* replay.c: the replay queue. In the first run: a record to be filled. In the second: the first run's, compared. */
struct sf_record *sf_record(struct sf_context *, const char *name, uint64_t arguments, size_t length);
struct sf_record *sf_replay(struct sf_context *, const char *name, uint64_t arguments);
/* In a retry: what the failed run was given by this call, now in the queue; nothing if it is a first time. */
struct sf_record *sf_kept(struct sf_context *, const char *name, uint64_t arguments);
static inline uint8_t *sf_data(struct sf_record *r) { return (uint8_t *)(r + 1); }

/* table.c: the clone, or nothing */
void *sf_clone_of(void *function);

_Noreturn void sf_async_second(struct sf_context *, size_t slots, uint64_t *table); /* core.c */
/* formats.c: WHAT for each string that the format reads: where its pointer lies in the list, and how much is read at most. */
void sf_format_strings(const char *how, __builtin_va_list, void (*what)(const char **slot, size_t most, bool wide));
/* retry.c: after a mismatch in a handler. Does not return if the handler can begin again. */
void sf_try_again(const char *what, const char *name, uint64_t at, uint64_t first, uint64_t second);
/* waits.c: in whose way a handler is (of), up to its next end, and whether somebody unknown may be meant. */
struct sf_waited {
  struct sf_context *of;
  uint32_t ends;
  bool unknown;
};
struct sf_waited sf_waits(struct sf_context *, void *lock, bool may_give_way);
void sf_waits_no_more(struct sf_context *);
void sf_wake_waiting(struct sf_context *);
void sf_wait_end(const struct sf_waited *);
/* retry.c: rolls back, unlocks, waits until the other has ended, or for so many nanoseconds, and begins again. */
_Noreturn void sf_give_way(struct sf_context *, const struct sf_waited *, uint64_t ns);
/* split.c: a handler that waits for a condition ends there, and goes on as another. */
#define SF_SPLIT_HALF 1  /* it has waited: runs begin at the wait's return */
#define SF_SPLIT_WAITS 6 /* 2: the first run has come to the next wait, 4: the second too */
_Noreturn void sf_split_second(struct sf_context *); /* R is done: the second run begins */
_Noreturn void sf_split_again(struct sf_context *);  /* after a rollback: the first run from the last wait */
void sf_split_free(struct sf_context *);
/* core.c: phase I of what follows a wait. */
void sf_begin_half(struct sf_context *);
void sf_ignore_words(struct sf_context *, uintptr_t at, size_t length);
/* fail.c: the two lines about a mismatch; action is "retry" or "stopped". */
void sf_tell(const char *what, const char *name, uint64_t at, uint64_t first, uint64_t second, const char *action);

/* provenance.c: messages outside handlers. The first two with c->provenance only. */
/* Whether it had changed and has been put right. */
bool sf_provenance_input(struct sf_context *, const void *message, size_t length, enum sf_message_kind);
void sf_provenance_taken(struct sf_context *, const void *message, size_t length, enum sf_message_kind);
void sf_provenance_output(struct sf_context *, const void *bytes, size_t length, uint32_t crc);
void sf_provenance_unknown(struct sf_context *, size_t length);
void sf_provenance_moved(uintptr_t to, uintptr_t from, size_t length); /* outside handlers, by a function that `carries` names */
/* Bytes of a message that have changed, from what was received, if that has the message's checksum. */
void sf_provenance_restore(struct sf_context *, const void *message, size_t length, uint32_t crc);
void sf_provenance_thread(struct sf_context *); /* nothing is known any more */

/* fail.c: what is said of a crash in a run. */
extern const char sf_crash[];
/* fail.c: a message outside handlers looked wrong, and right when it was looked at again. */
void sf_tell_held(const char *what, const char *but);
void sf_tell_mended(const struct sf_context *, const char *what); /* a word of the runtime's own has been set right */
/* fail.c: one line, before the verdict. */
void sf_tell_not_repaired(const char *why);

/* libc.c: what only the C library knows */
void sf_defer_last(struct sf_context *, const char *name, void *function, void *on); /* after the locks are released */
void sf_defer_forget(struct sf_context *, void *on);
void sf_stack_bounds(uintptr_t *low, uintptr_t *high);
void sf_thread_ends(struct sf_context *);
void sf_check_leaving(struct sf_context *);
void sf_commit_effects(struct sf_context *);
void sf_free(void *);

/* locks.c */
void sf_locks_resolve(struct sf_context *); /* after a crash while a lock was being taken */
bool sf_lock_held(struct sf_context *, void *lock); /* by this thread, also since before the handler */
void sf_lock_shown(struct sf_context *, const void *lock, bool); /* whether others see that this thread holds it */
bool sf_lock_is_fresh(struct sf_context *, const void *lock);
void sf_locks_begin(struct sf_context *);
void sf_locks_between_runs(struct sf_context *);
void sf_locks_check(struct sf_context *);
void sf_locks_hold(struct sf_context *); /* the list is as V has seen it */
void sf_locks_release(struct sf_context *); /* what is held more often than the program holds it */
void sf_locks_mend(struct sf_context *);    /* which they are, of a list that a fault may have changed */
void sf_locks_forget(struct sf_context *);  /* those that the run has made */

/* crc.c */
SF_API uint32_t sf_crc32c(uint32_t crc, const void *bytes, size_t length);

/* fail.c. A verdict: the runs differ. What is one phrase, where an address or a name. */
_Noreturn SF_COLD void sf_differ(const char *what, uint64_t at, uint64_t first, uint64_t second);
_Noreturn SF_COLD void sf_differ_name(const char *what, const char *name, uint64_t first, uint64_t second);
/* The setting, or the program, does not allow hardening. */
_Noreturn SF_COLD void sf_stop(const char *what, const char *fix);
/* Our own bug. */
_Noreturn SF_COLD void sf_bug(const char *what);
/* A mismatch was repaired: the handler's effects are out. */
void sf_recovered(const struct sf_context *);
/* System calls, by number. */
long sf_syscall(long number, long a, long b, long c, long d, long e, long f);

/* fail.c: a difference in code outside handlers (between.c). */
void sf_tell_between(const char *where, uint64_t first, uint64_t second);

/* Room for so many bytes more; their address, which is that of the buffer's end. */
static inline void *sf_grow(struct sf_buffer *b, size_t bytes) {
  size_t used = b->used;
  if (unlikely(used + bytes > b->size))
    sf_enlarge(b, bytes);
  uint8_t *at = b->base + used;
  sf_opaque(at); /* the sum is compared, not what it is made of */
  b->used = used + bytes;
  sf_reload();
  if (SF_CHECKED(PLACES) && unlikely(b->used != used + bytes || b->used > b->size || at != b->base + used)) {
    b->used = used;
    sf_differ("a table of the runtime did not grow as it should", (uint64_t)at, used, bytes);
  }
  return at;
}

#endif
