/* --validate=async: what the thread (async.c) and the validator (validator.c) share: the ring of records, and where it lies. */
#ifndef STEADFAST_ASYNC_H
#define STEADFAST_ASYNC_H

#include "runtime.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/types.h>

/* Handlers that may wait, at most: a table of their records. */
#define LAG_MAX 4096
/* Bytes of the ring: the largest record. Only what is used is memory: the ring begins anew whenever it is empty. */
#define RING (64ull << 20)
/* The validator's own memory: the table for a record that fills the ring, up to ten slots of 9 bytes for each word of 24 bytes. */
#define OWN (512ull << 20)
/* How often a side looks before it asks the kernel to wake it: 20 to 50 us (a pause takes 10 to 25 ns), about what a wait in
   the kernel costs until it is over. */
#define SPINS 2000
#define STACK (256 << 10)
#define PAGE 4096ull
/* Seconds of its own processor time after which a second run is said not to end. */
#define ENDLESS 2

struct record {
  uint64_t sum; /* of all that follows */
  uint64_t bytes;
  const struct sf_handler *handler;
  uint64_t event, result;
  uint64_t kept[8]; /* of the driver, at its call of __sf_begin */
  uint64_t stack_low, stack_length;
  uint64_t mxcsr, mxcsr_first, errno_begin;
  uint64_t message_count, message_cursor, ignored_count;
  uint64_t count, ranges, arena, queue, deferred, parts; /* entries; bytes of each buffer */
  uint64_t frame;                                        /* bytes from kept[7] + 8 on */
  uint64_t tsc;                                          /* when it was published */
  /* Then: entries, news, ranges, arena, queue, deferred, parts, messages, ignored, frame. Short, since each line of it goes
     from one core's cache to the other's. */
};

struct shared {
  _Alignas(64) _Atomic uint32_t published;
  _Alignas(64) _Atomic uint32_t validated; /* futex */
  _Alignas(64) _Atomic uint32_t sleeps_thread, sleeps_validator;
  _Atomic uint32_t bell; /* futex: what the validator sleeps on */
  _Atomic uint32_t ending; /* the program ends: the validator is to go */
  _Alignas(64) _Atomic uint32_t busy;   /* the validator is in a second run */
  const struct sf_handler *handler; /* of that */
  uint64_t event;
  uint64_t behind[64]; /* handlers by how many had run when they were validated, by powers of two */
  uint64_t delay[64];  /* by the time since they were published, in cycles */
  _Alignas(64) uint64_t place[LAG_MAX]; /* where a record begins */
};

/* Written by the thread before there is a validator, whose own copy it is from then on. */
struct sf_later {
  struct shared *shared;
  uint8_t *ring;
  cpu_set_t there;
  uint64_t thread_base; /* thread pointer of the thread whose handlers they are */
  struct sf_context *context;
  uint8_t *own_stack, *own_memory;
  size_t own_used;
  size_t slots; /* of the validator's table */
};
extern struct sf_later sf_later;

/* validator.c: never returns to the program; and the end of its second run. */
_Noreturn void sf_validator(pid_t parent);
__attribute__((noreturn)) void sf_async_validated(struct sf_context *);
_Noreturn void sf_leave(int status); /* fail.c */

static inline void pause_a_little(void) { __builtin_ia32_pause(); }

static inline void futex_wait(_Atomic uint32_t *at, uint32_t seen) { sf_syscall(SYS_futex, (long)at, 0 /* WAIT */, (long)seen, 0, 0, 0); }
static inline void futex_wake(_Atomic uint32_t *at) { sf_syscall(SYS_futex, (long)at, 1 /* WAKE */, 1, 0, 0, 0); }

/* FNV's multiplication over words: a changed, lost or moved word changes it. */
static inline uint64_t sum_of(const void *from, size_t bytes) {
  const uint64_t *w = from;
  uint64_t a = 0xcbf29ce484222325ull, b = 0x9ae16a3b2f90404full;
  size_t n = bytes / 8, i = 0;
  for (; i + 2 <= n; i += 2) {
    a = (a ^ w[i]) * 0x100000001b3ull;
    b = (b ^ w[i + 1]) * 0x100000001b3ull;
  }
  if (i < n)
    a = (a ^ w[i]) * 0x100000001b3ull;
  return a ^ (b << 1 | b >> 63);
}

#endif
