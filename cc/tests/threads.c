/* Threads that share state under locks: what comes out does not depend on their order. 100 threads, since libsei's table
   has 16; each ignores a buffer of its own, since libsei's ignore tables are one for all. */
#include <steadfast/sei.h>

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef THREADS
#define THREADS 100
#endif
#define ROUNDS 100
#define CELLS 16

static struct {
  pthread_mutex_t lock;
  uint64_t value, updates;
} cells[CELLS + 1];
static pthread_rwlock_t all = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t nested;
static uint64_t reads;
static volatile uint32_t ticks; /* changes without a lock */

/* The others come in between; seldom, as each time may cost a time slice on a machine that has other work. */
static int given;
SF_ONCE int give(int k) { return __atomic_add_fetch(&given, 1, __ATOMIC_RELAXED) % 16 == 0 ? sched_yield() + k : k; }

SF_LOCAL_HANDLER uint64_t transfer(unsigned a, unsigned b, uint64_t *scratch) {
  sf_ignore(scratch, 64);
  scratch[1] = a * 1000 + (uint64_t)sf_run();
  if (a > b) {
    unsigned c = a;
    a = b, b = c;
  }
  uint32_t seen = ticks;
  pthread_rwlock_rdlock(&all);
  pthread_mutex_lock(&cells[a].lock);
  if (a != b)
    pthread_mutex_lock(&cells[b].lock);
  cells[a].value += 3;
  cells[b].value -= 3;
  cells[a].updates++;
  cells[b].updates++;
  if (a != b)
    pthread_mutex_unlock(&cells[b].lock);
  pthread_mutex_unlock(&cells[a].lock);
  /* Released by the program, kept until the end: taken again at once. */
  pthread_mutex_lock(&cells[a].lock);
  cells[a].updates++;
  pthread_mutex_unlock(&cells[a].lock);
  pthread_rwlock_unlock(&all);
  return seen - ticks > 1000000 ? 1 : 2;
}

/* One lock after the other, in any order: sound, since the program never holds two; but hardened both are kept. */
SF_LOCAL_HANDLER void visit(unsigned a, unsigned b) {
  unsigned way[2] = {a, b};
  for (int i = 0; i < 2; i++) {
    pthread_mutex_lock(&cells[way[i]].lock);
    give(i);
    cells[way[i]].updates++;
    pthread_mutex_unlock(&cells[way[i]].lock);
  }
}

/* The same with four of them, and one more that is still locked when the others are taken. */
SF_LOCAL_HANDLER void tour(unsigned a, unsigned b) {
  pthread_mutex_lock(&cells[CELLS].lock);
  for (unsigned i = 0; i < 4; i++) {
    unsigned k = (a + i * b) % CELLS;
    pthread_mutex_lock(&cells[k].lock);
    cells[k].updates++;
    give(2);
    pthread_mutex_unlock(&cells[k].lock);
  }
  cells[CELLS].updates++;
  pthread_mutex_unlock(&cells[CELLS].lock);
}

/* Outside handlers: two locks at once, in an order that visit and tour keep to none of. */
static void outside(unsigned a, unsigned b) {
  if (a > b) {
    unsigned c = a;
    a = b, b = c;
  }
  pthread_mutex_lock(&cells[a].lock);
  if (a != b)
    pthread_mutex_lock(&cells[b].lock);
  cells[a].updates++;
  if (a != b)
    pthread_mutex_unlock(&cells[b].lock);
  pthread_mutex_unlock(&cells[a].lock);
}

SF_LOCAL_HANDLER int recursive(void) {
  int taken = 0;
  pthread_mutex_lock(&nested);
  if (pthread_mutex_trylock(&nested) == 0) {
    taken = 1;
    pthread_mutex_unlock(&nested);
  }
  reads++;
  pthread_mutex_unlock(&nested);
  return taken;
}

static pthread_barrier_t start;
static void *worker(void *of) {
  pthread_barrier_wait(&start);
  unsigned id = (unsigned)(uintptr_t)of, seed = id;
  uint64_t scratch[8] = {0};
  for (int i = 0; i < ROUNDS; i++) {
    transfer((unsigned)rand_r(&seed) % CELLS, (unsigned)rand_r(&seed) % CELLS, scratch);
    while (i % 10 == 0 && !sf_barrier())
      sched_yield();
    if (!recursive())
      abort();
    unsigned a = (unsigned)rand_r(&seed), b = (unsigned)rand_r(&seed);
    if (i % 5 == 0)
      visit(a % CELLS, b % CELLS);
    if (i % 9 == 0)
      tour(a, b % CELLS);
    if (i % 100 == 0)
      outside(a % CELLS, b % CELLS);
    ticks++;
  }
  return NULL;
}

int main(void) {
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&nested, &kind);
  for (int i = 0; i <= CELLS; i++)
    pthread_mutex_init(&cells[i].lock, NULL);
  pthread_barrier_init(&start, NULL, THREADS);
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, worker, (void *)i) != 0)
      return 1;
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  uint64_t sum = 0, updates = 0;
  for (int i = 0; i <= CELLS; i++)
    sum += cells[i].value, updates += cells[i].updates;
  printf("sum %lu updates %lu reads %lu\n", (unsigned long)sum, (unsigned long)updates, (unsigned long)reads);
  return 0;
}
