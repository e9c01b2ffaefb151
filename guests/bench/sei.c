/* One handler of each kind, called very often: nanoseconds a call, a line each, "name count ns".
   The stores are distinct words, scattered as fields of objects are (not one array that a range log would swallow).

   Built twice, by clang (STEADFAST_PLAIN) and by `steadfast cc`, with the same flags; with libsei (LIBSEI) by gcc, in whose transactions
   neither assembly nor volatile accesses may stand. */
#define _GNU_SOURCE
#ifdef LIBSEI
#include <sei.h>
#include <sei/compat.h>
#define SF_LOCAL_HANDLER __attribute__((noinline))
#define BEGIN __begin_nm();
#define END __end();
#define NOTHING
#define STORED
#else
#include <steadfast/sei.h>
#define BEGIN
#define END
#define NOTHING __asm__ volatile("") /* else the optimiser sees that the handler does nothing */
#define STORED volatile
#endif

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WORDS_MAX 1024

/* A field of 8 bytes in objects of 48: three stores to two cache lines. */
struct object {
  uint64_t a, b, c, d, e, f;
};
/* Visible to other modules, so that no store is dropped as unread. */
struct object objects[WORDS_MAX] __attribute__((aligned(64)));
struct object *order[WORDS_MAX];
unsigned char from[65536] __attribute__((aligned(64))), to[65536] __attribute__((aligned(64)));
uint64_t input;

SF_LOCAL_HANDLER void empty(void) {
  BEGIN
  NOTHING;
  END
}

SF_LOCAL_HANDLER void stores(size_t n) {
  BEGIN
  for (size_t i = 0; i < n; i++)
    order[i]->c = input + i;
  END
}

/* The same word again: what a loop that keeps its counter in memory does. */
SF_LOCAL_HANDLER void repeated(size_t n) {
  BEGIN
  for (size_t i = 0; i < n; i++)
    *(STORED uint64_t *)&objects[0].d = input + i;
  END
}

SF_LOCAL_HANDLER void sequential(size_t n) {
  BEGIN
  uint64_t *words = (uint64_t *)to;
  for (size_t i = 0; i < n; i++)
    words[i] = input ^ i;
  END
}

/* Byte by byte up to an end that it finds, as string libraries do: no vector of it. */
SF_LOCAL_HANDLER void bytes(size_t n) {
  BEGIN
  for (size_t i = 0; i < n && from[i]; i++)
    to[i] = from[i];
  END
}

SF_LOCAL_HANDLER void copy(size_t n) {
  BEGIN
  memcpy(to, from, n);
  END
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* others may have the processor meanwhile */
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void measure(const char *name, void (*handler)(size_t), size_t n, size_t calls) {
  for (size_t i = 0; i < calls / 10 + 1; i++)
    handler(n);
  double begin = now();
  for (size_t i = 0; i < calls; i++) {
    input = i;
    handler(n);
  }
  printf("%s %zu %.3f\n", name, n, (now() - begin) / (double)calls);
}

static void call_empty(size_t n) {
  (void)n;
  empty();
}

int main(int argc, char **argv) {
  double scale = argc > 1 ? atof(argv[1]) : 1;
  size_t calls = (size_t)(200000 * scale);
  for (size_t i = 0; i < WORDS_MAX; i++)
    order[i] = &objects[i * 389 % WORDS_MAX]; /* 389 is odd: each once */
  measure("empty", call_empty, 0, 10 * calls);
  for (size_t n = 16; n <= WORDS_MAX; n *= 4)
    measure("stores", stores, n, calls * 16 / n);
  measure("repeated", repeated, 16, calls);
  measure("repeated", repeated, 256, calls / 16);
  measure("sequential", sequential, 16, calls);
  measure("sequential", sequential, 256, calls / 16);
  memset(from, 7, sizeof from);
  measure("bytes", bytes, 16, calls);
  measure("bytes", bytes, 256, calls / 16);
  measure("bytes", bytes, 4096, calls / 64);
  measure("copy", copy, 64, calls);
  measure("copy", copy, 1024, calls / 4);
  measure("copy", copy, 4096, calls / 8);
  measure("copy", copy, 65536, calls / 64);
  return 0;
}
