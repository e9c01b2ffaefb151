/* What is done once: in handlers and outside, by threads that come to it together, twice in the same handler, and two such things
   by handlers that come to them in either order. */
#include <steadfast/sei.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>

enum { THREADS = 16, ROUNDS = 20 };
static pthread_once_t first[ROUNDS], either[ROUNDS][2], second = PTHREAD_ONCE_INIT;
static once_flag third = ONCE_FLAG_INIT;
static pthread_barrier_t together;
static int firsts[ROUNDS], seconds, thirds, wrong, now;
static long eithers[2]; /* words of their own: each is its routine's */
static char *made;

static void do_first(void) {
  made = malloc(16);
  made[1] = 1;
  firsts[now]++;
}
static void do_one(void) { eithers[0]++; }
static void do_other(void) { eithers[1]++; }
static void do_second(void) { seconds++; }
static void do_third(void) { thirds++; }

SF_LOCAL_HANDLER static int handle(int round) {
  pthread_once(&first[round], do_first);
  pthread_once(&first[round], do_first);
  return made[1] * firsts[round];
}

SF_LOCAL_HANDLER static void both(int round, int from) {
  pthread_once(&either[round][from], from ? do_other : do_one);
  pthread_once(&either[round][!from], from ? do_one : do_other);
}

SF_LOCAL_HANDLER static void others(void) {
  pthread_once(&second, do_second);
  call_once(&third, do_third);
}

static void *work(void *number) {
  for (int round = 0; round < ROUNDS; round++) {
    if (pthread_barrier_wait(&together) == PTHREAD_BARRIER_SERIAL_THREAD)
      now = round;
    pthread_barrier_wait(&together);
    /* Every other thread comes from outside. */
    int seen;
    if ((size_t)number % 2) {
      seen = handle(round);
    } else {
      pthread_once(&first[round], do_first);
      seen = firsts[round];
    }
    if (seen != 1)
      __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    both(round, (int)((size_t)number / 2 % 2));
  }
  others();
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  pthread_barrier_init(&together, NULL, THREADS);
  for (size_t i = 0; i < THREADS; i++)
    pthread_create(&threads[i], NULL, work, (void *)i);
  for (size_t i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  printf("%d wrong; %d, %ld, %d and %d\n", wrong, firsts[0] + firsts[ROUNDS - 1], eithers[0] + eithers[1], seconds, thirds);
  return wrong != 0;
}
