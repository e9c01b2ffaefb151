/* Handlers of all sizes: the runtime's tables grow under a large one, and shrink again when many small ones have followed (SF_IDLE in
   runtime.h). Words, ranges, records of calls, parts of outputs and locks, by two threads in turn. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <steadfast/sei.h>

#define WORDS (1 << 15)
#define SMALL 1200 /* more than SF_IDLE */

static struct state {
  uint64_t words[WORDS];
  unsigned char bytes[1 << 18], from[1 << 18];
  uint64_t turns;
} states[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

SF_HANDLER static void handle(struct state *s, uint64_t seed, uint64_t words, uint64_t length) {
  pthread_mutex_lock(&lock);
  for (uint64_t i = 0; i < words; i++)
    s->words[(i * 7) & (WORDS - 1)] += seed ^ i;
  memcpy(s->bytes, s->from, length);
  memset(s->from + length / 2, (int)seed, length / 2);
  for (uint64_t i = 0; i < words / 64; i++) {
    uint64_t *p = malloc(24);
    p[1] = i;
    s->turns += p[1];
    free(p);
  }
  s->turns++;
  pthread_mutex_unlock(&lock);
}

static uint64_t sum(const struct state *s) {
  uint64_t h = s->turns;
  for (size_t i = 0; i < WORDS; i++)
    h = h * 31 + s->words[i];
  for (size_t i = 0; i < sizeof s->bytes; i++)
    h = h * 31 + s->bytes[i] + s->from[i];
  return h;
}

static void *thread(void *of) {
  struct state *s = of;
  for (uint64_t i = 0; i < sizeof s->from; i++)
    s->from[i] = (unsigned char)(i * 37);
  for (uint64_t round = 0; round < 3; round++) {
    handle(s, round, WORDS, sizeof s->bytes);
    for (uint64_t i = 0; i < SMALL; i++)
      handle(s, i, i % 5, i % 300);
    handle(s, round, 700, 5000);
  }
  return NULL;
}

int main(void) {
  pthread_t other;
  pthread_create(&other, NULL, thread, &states[1]);
  thread(&states[0]);
  pthread_join(other, NULL);
  printf("%llx %llx\n", (unsigned long long)sum(&states[0]), (unsigned long long)sum(&states[1]));
  return 0;
}
