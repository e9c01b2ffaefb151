/*
 * The algorithm: phases I, E1, R, E2, V of one handler on one thread.
 *
 *     begin  I   open the gate, empty the log                        __sf_begin
 *            E1  the handler runs; first writes save the old word    store.S, log.c, ranges.c
 *     mid    R   new values to N, old values back from O             __sf_mid, restore.c
 *            E2  the handler runs again; words must be known         store.S, log.c, ranges.c
 *     end    V   same words, same bytes, memory equals N,            __sf_end, compare.c
 *                inputs and outputs still have their checksums       messages.c
 *                what may leave leaves                               commit, libc.c
 *
 * What goes beside them: gates.h says that they come in their order, replay.c gives the second run what the first was given, retry.c begins
 * again, context.c has what a thread has, memory.c what all of it lies in. Modes that a program may be linked with: modes.h.
 *
 * Rules of the paper (Figure 3), and where they are: R1, R5 reads are checked by the memory (mode ecc); R2 and R6 log.c: log_first,
 * log_second; R3, R8 and R4, R9 locks.c; R7 messages.c.
 *
 * Three value sets are kept apart: O (entries, arena), N (news, arena), live (memory after E2). Putting back reads
 * only O.
 *
 * Invariants
 *  1. A byte of memory is written by hardened code only after its old value is in O (E1), or it was found in O (E2).
 *  2. O is never written after the first run.
 *  3. Nothing that V has not passed leaves: deferred effects are carried out by __sf_end alone.
 *
 * Not covered: see docs/reference/limits-cc.md, "Faults in a handler".
 */
#include "gates.h"
#include "log.h"

#include <stdatomic.h>

/* The bounds of the run's frames: with others, stores that no log knows pass for those to frames. */
static inline bool frames_hold(const struct sf_context *c) {
  uint64_t other = (__sf_tls.stack_low ^ c->stack_low) | (__sf_tls.stack_length ^ c->run_bytes);
  return !SF_CHECKED(FRAMES) || likely((other | (c->stack_high - c->stack_low - c->stack_bytes)) == 0);
}

static void check_frames(struct sf_context *c) {
  if (unlikely(!frames_hold(c)))
    sf_differ("the bounds of the run's frames have changed", __sf_tls.stack_low, c->run_bytes, __sf_tls.stack_length);
}

static inline void check_closed(const struct sf_context *c) {
  if (unlikely(c->open != 0))
    sf_differ("a loop was left and its range was not closed", c->ranges.used, 0, c->open);
}

/* The bits that a program sets, without those that the processor raises by itself. */
#define MXCSR_CONTROL 0xffc0u

/* A new event, seen by all before anything of the state is read: a locked instruction, which alone on the machine is not
   needed. Acquire: what a new thread's context says of the next was written before it was in the list. */
static inline void count_event(struct sf_context *c) {
  c->event++;
  c->gave_way = 0;
  c->messages_outside = c->message_count;
  if (atomic_load_explicit(&sf_contexts, memory_order_acquire)->next)
    atomic_fetch_add(&c->counter, 1);
  else
    atomic_store_explicit(&c->counter, c->counter + 1, memory_order_relaxed);
}

/* The first run, from here on. */
static inline void open_run(struct sf_context *c, const struct sf_handler *h) {
  c->again = 0;
  c->runs++;
  c->handler = h;
  c->count = c->exempted = c->open = c->trace.used = 0;
  __sf_tls.partial = c->state; /* with copies of the state every word goes the long way */
  c->crc_running = 0;
  __sf_tls.cursor = c->entries;
  __sf_tls.limit = c->entries + c->capacity;
  __sf_tls.grows = NULL;
  __sf_tls.sum = 0;
  __sf_tls.delta = 0;
  c->message_cursor = c->message_count;
  if (unlikely(c->locks.used | c->state | (uintptr_t)c->shadow)) {
    if (c->state)
      __sf_state.begin(c);
    sf_locks_begin(c);
    if (c->shadow)
      __sf_recover.shadow_begin(c);
  }
  c->mxcsr = mxcsr_get();
  c->errno_begin = *__errno_location();
  if (unlikely(c->epoch + 2 >= (uint64_t)1 << SF_EPOCH_BITS)) {
    /* Epochs are used up: forget all. 16 KiB once in 250 handlers. */
    c->epoch = SF_EPOCH_FIRST;
    void *d = __sf_tls.table;
    size_t n = slots() * 8;
    __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(0) : "memory");
  }
  __sf_tls.epoch_key = c->epoch << SF_EPOCH_SHIFT;
  __sf_tls.key_whole = __sf_tls.epoch_key | BYTES;
  __sf_tls.phase = SF_E1;
  end_phase(c, h, END_I);
  if (unlikely(c->shadow != NULL))
    __sf_recover.shadow_opened(c);
}

/* Called by __sf_begin (store.S), and again by a retry. 0: the first run comes next. */
int sf_begin(const struct sf_handler *h) {
  struct sf_context *c = sf_context();
  /* The driver's stack pointer, above the return address to it and its frame pointer: the runs' frames begin there. */
  const uintptr_t *own = __builtin_frame_address(0);
  uintptr_t frame = (uintptr_t)own + 16;
  /* Its frame pointer is above: a stack pointer that has changed before would return to its caller, and frames of this would pass
     for the run's. */
  if (unlikely(*own < frame))
    sf_gate_differs(c, h, END_I);
  if (unlikely(frame - c->stack_low >= c->stack_high - c->stack_low))
    sf_stop("a handler runs on a stack that is not its thread's",
            "call handlers from ordinary threads, not from coroutines or signal stacks");
  if (unlikely(c->split_state != 0) && c->split == NULL && sf_recovers())
    c->split_state = 0; /* no wait has made it so */
  if (unlikely(__sf_tls.phase != SF_OUTSIDE || c->split_state != 0))
    sf_gate_differs(c, h, END_I);
  if (unlikely(sf_second_core()))
    __sf_second_core.ready(c);
  if (likely(c->again == 0))
    count_event(c);
  __sf_tls.stack_low = c->stack_low;
  __sf_tls.stack_length = frame - c->stack_low;
  uintptr_t again = (uintptr_t)__builtin_frame_address(0); /* no store is exempt by one of the two alone */
  sf_opaque(again);
  c->run_bytes = again + 16 - c->stack_low;
  if (unlikely(sf_async()))
    __sf_async.begin(c, h);
  open_run(c, h);
  return 0;
}

/* A run that was left by another way than its end, by a stack pointer that changed, comes back to a caller that takes it for done. What
   it did was never validated, and from then on each handler would pass for a part of it. Its caller's frames lie above the run's. */
static inline void ask_whether_left(const struct sf_handler *h, uintptr_t frame) {
  if (unlikely(frame - __sf_tls.stack_low >= __sf_tls.stack_length))
    sf_gate_differs(__sf_own, h, END_I);
}

SF_API void __sf_nested(const struct sf_handler *h) { ask_whether_left(h, (uintptr_t)__builtin_frame_address(0) + 16); }

/* A signal may end the program in the middle of a run, from a frame below or from a stack of its own. */
__attribute__((destructor)) static void ask_at_exit(void) {
  const struct sf_context *c = __sf_own;
  uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
  if (unlikely(__sf_tls.phase != SF_OUTSIDE) && frame - c->stack_low < c->stack_bytes)
    ask_whether_left(c->handler, frame);
}

void sf_begin_half(struct sf_context *c) {
  if (unlikely(__sf_tls.phase != SF_OUTSIDE))
    sf_gate_differs(c, c->handler, END_I);
  if (likely(c->again == 0))
    count_event(c);
  open_run(c, c->handler);
  if (unlikely(c->ignored_count)) {
    __sf_tls.limit = NULL;
    __sf_tls.shadow = __sf_tls.shadow_again = NULL;
  }
}

/* The inputs are handled. Before V ends: a jump from behind it to the beginning finds them so. */
static inline void take_inputs(struct sf_context *c) {
  if (unlikely(c->provenance != NULL))
    for (size_t i = 0; i < c->message_count; i++)
      sf_provenance_taken(c, c->messages[i].bytes, c->messages[i].length, c->messages[i].kind);
}

/* What leaves, and what is forgotten, when a handler has been validated; or, where that comes later, has run. */
static inline __attribute__((always_inline)) void commit(struct sf_context *c) {
  __sf_tls.phase = SF_OUTSIDE;
  c->epoch += 2;
  c->committed++;
  if (c->parts.used)
    sf_commit_outputs(c);
  c->message_count = c->ignored_count = 0;
  see_passed(c);
  sf_commit_effects(c);
  see_passed(c); /* before other threads count on it (sf_barrier) */
  if (unlikely(c->retry)) {
    sf_recovered(c);
    __sf_recover.done(c);
    c->retry = 0;
  }
  c->kept.used = c->kept_cursor = 0;
  atomic_store_explicit(&c->counter, atomic_load_explicit(&c->counter, memory_order_relaxed) + 1, memory_order_release);
  if (unlikely(c->grown))
    sf_buffers_shrink(c);
  if (unlikely(c->ranges.used)) {
    sf_reset(&c->ranges);
    sf_reset(&c->arena);
  }
  if (c->queue.used)
    sf_reset(&c->queue);
  if (c->deferred.used) {
    sf_reset(&c->deferred);
    c->leaves = false;
  }
  if (unlikely(c->tables_old_count))
    sf_tables_drop(c);
  if (unlikely(c->capacity > SF_WORDS))
    c->idle = c->count > SF_WORDS ? 0 : c->idle + 1;
  if (unlikely(c->idle > SF_IDLE)) {
    sf_log_shrink(c);
    c->idle = 0;
  }
  c->split_state = 0;
}

/* --validate=async: in place of R. Memory stays as the first run has left it, for all that comes later; what the second
   run needs goes to the validator (async.c). */
static SF_COLD void hand_over(struct sf_context *c, uint64_t result) {
  c->result_first = result;
  c->mxcsr_first = mxcsr_get();
  uint64_t sum = 0;
  for (size_t i = 0; i < c->count; i++)
    sum += weigh(c->entries[i].where, c->entries[i].old);
  if (unlikely(sum != __sf_tls.sum))
    sf_differ("the log of old values has changed", (uint64_t)c->entries, __sf_tls.sum, sum);
  for (size_t i = 0; i < c->message_count; i++)
    sf_check_message(c, &c->messages[i]);
  /* What leaves has the first run's checksum; the second run's is compared with it. */
  for (size_t i = 0; i < c->parts.used / sizeof(struct sf_part); i++) {
    struct sf_part *p = (struct sf_part *)c->parts.base + i;
    if (p->kind == SF_PART_NAMED)
      p->crc_first = sf_crc32c(0, p->bytes, p->length);
    p->crc = p->crc_first;
  }
  __sf_async.publish(c);
  __sf_async.before_effects(c);
  take_inputs(c);
  sf_gates_close(c, c->event);
  commit(c);
}

SF_API int __sf_mid(const struct sf_handler *h, uint64_t result) {
  struct sf_context *c = __sf_own;
  if (unlikely(c->handler != h || __sf_tls.phase != SF_E1))
    sf_gate_differs(c, h, END_E1);
  end_phase(c, h, END_E1);
  check_frames(c);
  check_closed(c);
  c->result_first = result;
  size_t count = (size_t)(__sf_tls.cursor - c->entries), ranges = range_count(c);
  if (unlikely(count > c->capacity))
    sf_differ("the log has lost its end", (uint64_t)__sf_tls.cursor, c->capacity, count);
  c->count = count;
  if (unlikely(sf_async())) {
    hand_over(c, result);
    return 1;
  }
  uint64_t sum = 0, wrong = 0;
  if (count | ranges | __sf_tls.partial)
    wrong = sf_change_over(c, ranges, &sum);
  if (unlikely(sum != __sf_tls.sum))
    sf_differ("the log of old values has changed", (uint64_t)c->entries, __sf_tls.sum, sum);
  if (unlikely(wrong != 0))
    sf_differ("memory could not be put back", (uint64_t)c->entries, 0, wrong);
  if (unlikely(__sf_tls.partial != 0) && sf_state())
    __sf_state.mid(c);
  sf_locks_between_runs(c);
  c->crc_running = c->leaving = 0;
  c->mxcsr_first = mxcsr_get();
  if (unlikely(c->mxcsr_first != c->mxcsr))
    mxcsr_set(c->mxcsr);
  *__errno_location() = c->errno_begin;
  c->range_cursor = c->queue_cursor = c->deferred_cursor = c->part_cursor = 0;
  c->trace_cursor = 0;
  __sf_tls.epoch_key = (c->epoch + 1) << SF_EPOCH_SHIFT;
  __sf_tls.key_whole = __sf_tls.epoch_key | BYTES;
  __sf_tls.limit = NULL;
  __sf_tls.shadow = __sf_tls.shadow_again = NULL;
  __sf_tls.delta = (uint64_t)1 << SF_EPOCH_SHIFT;
  __sf_tls.phase = SF_E2;
  end_phase(c, h, END_R);
  if (unlikely(sf_second_core()))
    __sf_second_core.go(c);
  if (unlikely(c->split_state))
    sf_split_second(c);
  return 0;
}

SF_API void __sf_end(const struct sf_handler *h, uint64_t result) {
  struct sf_context *c = __sf_own;
  if (unlikely(sf_second_core()))
    __sf_second_core.back(c);
  if (unlikely(c->handler != h || __sf_tls.phase != SF_E2))
    sf_gate_differs(c, h, END_E2);
  end_phase(c, h, END_E2);
  check_frames(c);
  check_closed(c);
  if (unlikely(__sf_tls.cursor != c->entries + c->count))
    sf_differ("the log has grown in the second run", (uint64_t)c->entries, c->count, (uint64_t)(__sf_tls.cursor - c->entries));
  if (unlikely(c->split_state & SF_SPLIT_WAITS && (c->split_state & SF_SPLIT_WAITS) != SF_SPLIT_WAITS))
    sf_differ_name("only the first run waits in", h->name, c->split_state, 0);
  if (unlikely(result != c->result_first))
    sf_differ_name("the runs return different results", h->name, c->result_first, result);
  if (c->parts.used)
    sf_finish_outputs(c);
  if (c->count)
    sf_compare_words(c);
  if (unlikely(c->ranges.used))
    sf_compare_ranges(c);
  if (unlikely(__sf_tls.partial != 0) && sf_state())
    __sf_state.publish(c);
  if (unlikely(c->queue_cursor != c->queue.used))
    sf_differ_name("only the first run calls", ((struct sf_record *)(c->queue.base + c->queue_cursor))->name, 0, 0);
  if (unlikely(c->deferred_cursor != c->deferred.used / sizeof(struct sf_deferred)))
    sf_differ_name("only the first run calls", ((struct sf_deferred *)c->deferred.base)[c->deferred_cursor].name, 0, 0);
  if (c->deferred.used)
    sf_check_leaving(c);
  if (unlikely((mxcsr_get() ^ c->mxcsr_first) & MXCSR_CONTROL))
    sf_differ_name("the runs leave different floating-point modes", h->name, c->mxcsr_first, mxcsr_get());
  if (c->parts.used)
    sf_check_outputs(c);
  for (size_t i = 0; i < c->message_count && !sf_async(); i++)
    sf_check_message(c, &c->messages[i]);
  sf_locks_check(c);
  if (unlikely(sf_async()))
    __sf_async.validated(c); /* in the validator: its effects were the first run's */
  take_inputs(c);
  end_phase(c, h, END_V);
  /* Committed. From here on effects happen. */
  commit(c);
}

/* --validate=async, in the validator: what __sf_mid leaves behind in the thread itself. The table is made from the log. */
extern _Noreturn void sf_second(void);

_Noreturn void sf_async_second(struct sf_context *c, size_t slot_count, uint64_t *table) {
  sf_table_of_log(c, slot_count, table);
  c->gate_enter = gate(c->event, END_R);
  c->gate_leave = gate(c->event, END_E1);
  c->crc_running = c->leaving = 0;
  c->exempted = 0;
  c->range_cursor = c->queue_cursor = c->deferred_cursor = c->part_cursor = 0;
  mxcsr_set(c->mxcsr);
  *__errno_location() = c->errno_begin;
  __sf_tls.cursor = c->entries + c->count;
  __sf_tls.limit = NULL;
  __sf_tls.partial = 1;
  __sf_tls.epoch_key = (c->epoch << SF_EPOCH_SHIFT) + ((uint64_t)1 << SF_EPOCH_SHIFT);
  __sf_tls.key_whole = __sf_tls.epoch_key | BYTES;
  __sf_tls.delta = (uint64_t)1 << SF_EPOCH_SHIFT;
  __sf_tls.phase = SF_E2;
  sf_second();
}
