/* A handler that is struck: argv names the place, the run (1, 2) and the event. Without a fault it prints what a plain
   build prints; with one the runtime must stop it before the event's line appears.

   The strike itself is code that the compiler pass leaves alone, so what it changes is not logged: to the runtime it
   looks like a flip in memory or a register. */
#include <steadfast/sei.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS 6

static struct {
  uint64_t sum, steps;
  unsigned char small[16];
  char name[8];
  char reply[64];
  char bulk[256];
} state;

static char message[32];
static const char *place = "none";
static int run, event, now;
void *volatile sink;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;

SF_LOCAL int hit(const char *here) {
  static int times; /* once: a retry meets no fault */
  return run == sf_run() && event == now && strcmp(here, place) == 0 && times++ == 0;
}

#ifndef STEADFAST_PLAIN
static jmp_buf out;
/* The first words of the runtime's context, as far as they are struck. */
extern __thread void *__sf_own;
extern __thread struct { void *table; uint64_t mask, epoch, phase; char *cursor, *limit; uint64_t sum, low, length; } __sf_tls;
void __sf_mid(const void *, uint64_t);
void __sf_end(const void *, uint64_t);
void __sf_defer(const char *, void *, size_t, const uint64_t *);

struct buffer {
  void *base;
  size_t size, used, idle;
};
struct context {
  uint64_t counter;
  void *next;
  uint64_t alive;
  const void *handler;
  uint64_t event, committed, gate_enter, gate_leave;
  struct { uint64_t where, old; } *entries;
  uint64_t *news;
  size_t count, capacity, exempted;
  uint64_t idle, epoch;
  uintptr_t stack_low, stack_high;
  struct buffer arena, ranges;
  size_t range_cursor;
  struct buffer queue;
  size_t queue_cursor;
  struct buffer deferred;
  size_t deferred_cursor;
  uint8_t leaves, full;
  uint32_t leaving;
  struct buffer locks;
};
/* Of struct sf_deferred, in 64-bit words: what is written here is the second that the handler leaves for later. */
enum { FILE_OF = 11 + 4, DATA = 11 + 10 };

/* An effect, so after V. */
SF_LOCAL static void strike_gate(void) { ((struct context *)__sf_own)->gate_leave ^= 1; }

SF_LOCAL static void strike_locks(void) {
  struct context *c = __sf_own;
  struct { void *lock; uint32_t kind, count, count_begin, count_first, held; } *first = c->locks.base;
  static const struct { const char *place; int what; } how[] = {{"locks_lock", 0}, {"locks_count", 1}, {"locks_held", 2}, {"locks_kind", 3}, {"locks_used", 4}};
  for (int i = 0; i < 5; i++)
    if (strcmp(place, how[i].place) == 0)
      switch (how[i].what) {
      case 0: first->lock = &other; break;
      case 1: first->count ^= 1; break;
      case 2: first->held ^= 1; break;
      case 3: first->kind ^= 1; break;
      case 4: c->locks.used = 0; break;
      }
}

SF_LOCAL void strike_runtime(void) {
  struct context *c = __sf_own;
  if (hit("old"))
    c->entries[0].old ^= 1;
  if (hit("where"))
    c->entries[0].where ^= 8;
  if (hit("entry_lost"))
    __sf_tls.cursor -= 16;
  if (hit("sum"))
    __sf_tls.sum ^= 1;
  if (hit("frames")) /* what lies there needs no log */
    __sf_tls.length ^= 1ull << 13;
  if (hit("stack"))
    c->stack_low ^= 1ull << 45;
  if (hit("end"))
    __sf_tls.cursor += 1ull << 40;
  if (hit("table"))
    __sf_tls.mask ^= 1 << 6;
  if (hit("range_old"))
    *(char *)c->arena.base ^= 1;
  if (hit("range_at"))
    *(uint64_t *)c->ranges.base -= 8;
  if (hit("news"))
    c->news[0] ^= 1 << 5;
  if (hit("gate_enter"))
    c->gate_enter ^= 1;
  if (hit("gate_leave"))
    c->gate_leave ^= 1;
  if (hit("jump_to_mid"))
    __sf_mid(c->handler, 0);
  if (hit("jump_to_end"))
    __sf_end(c->handler, 0);
  if (hit("jump_out")) { /* past validation: what the end of a handler does after it */
    __sf_tls.phase = 0;
    c->epoch += 2;
    longjmp(out, 1);
  }
  if (hit("leaves_where"))
    ((uint64_t *)c->deferred.base)[FILE_OF] ^= 1 << 4;
  if (hit("leaves_what"))
    ((uint64_t *)c->deferred.base)[DATA] += 8;
  if (hit("leaves")) /* the last line's end */
    ((char *)c->queue.base)[c->queue.used - 8] ^= 1;
  if (event == now && strcmp(place, "gate_effects") == 0)
    __sf_defer("strike_gate", (void *)strike_gate, 0, NULL);
  if (event == now && strncmp(place, "locks_", 6) == 0)
    __sf_defer("strike_locks", (void *)strike_locks, 0, NULL);
  if (hit("epoch"))
    __sf_tls.epoch ^= 1 << 8;
  if (hit("phase"))
    __sf_tls.phase ^= 3;
}

/* In the middle of a text, whose word's entry grows with each byte. */
SF_LOCAL void strike_growing(void) {
  struct { uint64_t where, old; } *last = (void *)(__sf_tls.cursor - 16);
  if (hit("grown_old"))
    last->old ^= 1ull << 40;
  if (hit("grown_where"))
    last->where ^= 1ull << 61;
}
#else
static void strike_runtime(void) {}
static void strike_growing(void) {}
#endif

/* Taken, and no list says so. */
SF_LOCAL void strike_lock(void) {
#ifndef STEADFAST_PLAIN
  if (hit("table_small"))
    __sf_tls.mask = 7 << 3; /* more words than this has room for follow */
#endif
  if (hit("lock")) {
    pthread_mutex_lock(&lock);
    __builtin_trap();
  }
}

/* The other way round: in the list, and never taken. */
SF_LOCAL void strike_taken(void) {
  if (hit("not_taken"))
    pthread_mutex_unlock(&lock);
}

SF_LOCAL void strike_memory(void) {
  if (hit("crash"))
    __builtin_trap();
  if (hit("value"))
    state.sum ^= 1ull << 40;
  if (hit("byte"))
    state.small[3] ^= 1;
  if (hit("bulk"))
    state.bulk[100] ^= 1;
  if (hit("reply"))
    state.reply[2] ^= 1;
  if (hit("message"))
    message[1] ^= 4;
}

static void work(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    state.sum = state.sum * 31 + (unsigned char)text[i];
    state.small[i % 16] += (unsigned char)text[i];
    state.steps++;
  }
  if (hit("extra_store"))
    state.steps = 7, state.small[15] = 9, *(volatile uint64_t *)&state.bulk[64] = 1;
  memset(state.bulk, (int)state.sum, hit("length") ? 200 : sizeof state.bulk);
}

static void spell(const char *text, size_t length) {
  for (size_t i = 0; i < 8; i++) {
    state.name[i] = (char)(state.name[i] + text[i % length]);
    if (i == 2)
      strike_growing();
  }
}

/* Read once: the second run is given the first run's value, if it asks for the same. */
static void read_volatile(void) {
  const void *at = &state.bulk[hit("read_where") ? 12 : 8];
  if (hit("read_width"))
    (void)*(const volatile uint16_t *)at;
  else
    (void)*(const volatile uint32_t *)at;
}

SF_HANDLER uint64_t handle(const char *text, size_t length) {
  strike_lock();
  read_volatile();
  pthread_mutex_lock(hit("other_lock") ? &other : &lock);
  if (hit("unlock"))
    pthread_mutex_unlock(&other);
  work(text, hit("branch") ? length - 1 : length);
  spell(text, length);
  char *block = malloc(hit("size") ? 65 : 64);
  snprintf(block, 64, "sum %lu steps %lu", (unsigned long)state.sum, (unsigned long)state.steps);
  strcpy(state.reply, block);
  if (hit("extra_call"))
    free(sink = malloc(8));
  free(block);
  fwrite(state.reply, 1, hit("output") ? 5 : strlen(state.reply), stdout);
  fputc('\n', stdout);
  sf_output_append(state.reply, sizeof state.reply);
  sf_output_done();
  pthread_mutex_unlock(&lock);
  strike_memory();
  strike_taken();
  strike_runtime();
  return hit("result") ? state.sum ^ 2 : state.sum;
}

int main(int argc, char **argv) {
  if (argc > 3)
    place = argv[1], run = atoi(argv[2]), event = atoi(argv[3]);
  for (now = 0; now < EVENTS; now++) {
    int length = snprintf(message, sizeof message, "message %d", now);
#ifndef STEADFAST_PLAIN
    if (!sf_input(message, (size_t)length, sf_crc32c(0, message, (size_t)length)))
      return 2;
    if (setjmp(out))
      continue;
#endif
    uint64_t result = handle(message, (size_t)length);
#ifndef STEADFAST_PLAIN
    if (sf_crc_pop() != sf_crc32c(0, state.reply, sizeof state.reply))
      return 3;
#endif
    if (result != state.sum)
      return 4;
  }
  printf("small %d bulk %d name %d\n", state.small[3], state.bulk[255], state.name[5]);
  return 0;
}
