/* A handler begins again: after a difference, with --recover; or to get out of the way of another one. */
#include "gates.h"
#include "log.h"

#include <stdatomic.h>

extern _Noreturn void sf_resume(const struct sf_handler *); /* store.S */

/* Whether the log has the old value of all these bytes, and so memory can be put back although the check of a store says that it
   cannot. */
static bool is_logged(struct sf_context *c, uintptr_t low, uintptr_t high) {
  size_t n = 0;
  for (uintptr_t at = low; at < high; at += n) {
    n = in_frames(c, at & ~7ull) ? 1 : sf_logged_from(c, at); /* what is ignored is not put back */
    if (n == 0)
      return false;
  }
  return true;
}

/* Some object was built without --recover: its stores do not look at the log before they happen. */
static bool unguarded(void) {
  const void *some = __sf_unguarded;
  sf_opaque(some);
  return some != NULL;
}

/* Whether a crash at this address ended a copy that had gone on behind its end, by a count that changed on the way: it reads and writes
   from both beginnings on, so within either range it had not. 0: an address that is none, which no counting leads to. */
static bool copied_beyond(uintptr_t at) {
  return sf_copying.length != 0 && at != 0 && at - sf_copying.to >= sf_copying.length && at - sf_copying.from >= sf_copying.length;
}

/* Some differences say that memory may have changed where no old value is known. Then a handler that begins again would find
   what a fault has left. */
static const char *beyond_log(struct sf_context *c, const char *what, uintptr_t at, uint64_t second) {
  if (__sf_tls.phase == SF_E1 && unguarded() && !key_holds(c))
    return "stores of this run may have been taken for logged ones";
  if (what == sf_wrong_place || (what == sf_crash && copied_beyond(at)))
    return "bytes were copied to a place that is not known";
  if (what == sf_range_not_logged && !is_logged(c, at, at + second))
    return "bytes were written whose old values are not known";
  for (unsigned k = 0; (what == sf_not_logged || what == sf_astray) && k < 16; k++)
    if (second >> k & 1 && !is_logged(c, at + k, at + k + 1))
      return "a word was written whose old value is not known";
  return NULL;
}

/* Everything else of the run is forgotten, but for what it had from outside; then the handler begins again. */
static _Noreturn void begin_again(struct sf_context *c) {
  c->kept.used = 0;
  c->kept_cursor = 0;
  for (size_t i = 0; i < c->queue.used && i + sizeof(struct sf_record) <= c->queue.size;) {
    struct sf_record *r = (struct sf_record *)(c->queue.base + i);
    if (r->run != c->runs)
      break; /* none of this run's: the count has changed, or the run ended before it was written */
    size_t bytes = sizeof *r + ((r->length + 7) & ~7ull);
    if (r->once)
      sf_copy(sf_grow(&c->kept, bytes), r, bytes);
    else if (sf_is_of_program(r->name) && sf_length(r->name) == 6 && sf_equal(r->name, "malloc", 6))
      sf_free((void *)r->result);
    i += bytes;
  }
  c->queue.used = c->deferred.used = c->parts.used = c->ranges.used = c->arena.used = 0;
  c->message_count = c->messages_outside;
  c->ignored_count = sf_copying.length = 0;
  sf_locks_between_runs(c);
  sf_locks_forget(c);
  c->epoch += 2;
  if (unlikely(c->shadow != NULL)) {
    /* A tag may be what was wrong. */
    c->epoch = SF_EPOCH_FIRST;
    void *d = __sf_tls.table;
    size_t n = slots() * 9;
    __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(0) : "memory");
  }
  sf_gates_close(c, c->event - 1);
  mxcsr_set(c->mxcsr);
  *__errno_location() = c->errno_begin;
  __sf_tls.phase = SF_OUTSIDE;
  c->again = 1;
  if (unlikely(c->split_state & SF_SPLIT_HALF))
    sf_split_again(c);
  c->split_state = 0;
  sf_resume(c->handler);
}

void sf_try_again(const char *what, const char *name, uint64_t at, uint64_t first, uint64_t second) {
  struct sf_context *c = __sf_own;
  if (!sf_recovers() || !c || __sf_tls.phase == SF_OUTSIDE || c->retry == SF_RETRIES || c->rolling)
    return;
  if (sf_second_core())
    __sf_second_core.back(c);
  uint64_t seen[4] = {(uint64_t)what, at, first, second};
  if (c->retry && sf_equal(seen, c->last, sizeof seen))
    return; /* the same difference again: not a fault */
  sf_copy(c->last, seen, sizeof seen);
  c->rolling = 1;
  __sf_recover.shadow_places_mend(c);
  sf_locks_mend(c);
  if (c->ignored_count > SF_IGNORED)
    c->ignored_count = 0;
  if (c->messages_outside > SF_MESSAGES)
    c->messages_outside = 0;
  if (c->message_count > SF_MESSAGES)
    c->message_count = c->messages_outside;
  /* Looked at before anything is put back again, in a log that is sound. */
  if (__sf_tls.phase == SF_E1)
    c->count = (size_t)(__sf_tls.cursor - c->entries);
  const char *why = __sf_recover.shadow_mend(c);
  if (!why)
    why = beyond_log(c, what, at, second);
  if (!why)
    why = sf_roll_back(c);
  if (why) {
    sf_tell_not_repaired(why);
    return;
  }
  if (unlikely(sf_state()) && !__sf_state.repair())
    return;
  for (size_t i = 0; i < c->message_count && c->provenance; i++)
    sf_provenance_restore(c, c->messages[i].bytes, c->messages[i].length, c->messages[i].crc);
  sf_locks_resolve(c);
  sf_tell(what, name, at, first, second, "retry");
  c->retry++;
  __sf_recover.move(c);
  if (sf_second_core())
    __sf_second_core.move(c);
  c->rolling = 0;
  begin_again(c);
}

/* In the way of another handler (waits.c). Nothing of this one has happened yet, so it begins later. */
void sf_give_way(struct sf_context *c, const struct sf_waited *w, uint64_t ns) {
  if (unlikely(__sf_tls.phase != SF_E1 || sf_roll_back(c)))
    sf_differ("memory could not be put back by a handler that gives way", (uint64_t)c->entries, __sf_tls.phase, c->count);
  sf_locks_between_runs(c);
  sf_locks_release(c);
  c->gave_way++;
  c->taking = NULL;
  /* Meanwhile it is in no handler: nobody's barrier waits for it. */
  atomic_store_explicit(&c->counter, c->counter + 1, memory_order_release);
  if (w->of && c->locks.used == 0) {
    sf_wait_end(w);
  } else {
    uint64_t t[2] = {ns / 1000000000, ns % 1000000000};
    sf_syscall(35 /* nanosleep */, (long)t, 0, 0, 0, 0, 0);
  }
  atomic_fetch_add(&c->counter, 1);
  begin_again(c);
}
