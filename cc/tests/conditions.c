/* Handlers that wait for conditions: each wait ends a handler and begins another. What comes out does not depend on the
   order of threads. argv names a place, a run (1, 2) and the request at which a fault strikes, as in faults.c. */
#include <steadfast/sei.h>

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>

#define REQUESTS 60
#define WORKERS 3
#define ROOM 2

static const char *place = "none";
static int run, event;

SF_LOCAL int hit(const char *here, unsigned number) {
  static int times; /* once: a retry meets no fault */
  return run == sf_run() && (unsigned)event == number && strcmp(here, place) == 0 && times++ == 0;
}

SF_LOCAL void strike(const char *text, unsigned number) {
  if (hit("message", number))
    ((char *)text)[2] ^= 1;
}

/* A queue with room for two, full more often than not: both sides wait. The value of a request lies in the frames of the
   handler that waits for it. */
struct request {
  unsigned number;
  uint64_t question, answer;
  int done;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t space = PTHREAD_COND_INITIALIZER, work = PTHREAD_COND_INITIALIZER, answered = PTHREAD_COND_INITIALIZER;
static struct request *queue[ROOM];
static pthread_mutex_t audit = PTHREAD_MUTEX_INITIALIZER;
static unsigned used, waits, taken, audits;
static uint64_t total;
static int over;

/* Arguments on the stack, a frame of some size, and a call between the handler and the wait. */
static void put(struct request *r, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g) {
  char text[200];
  snprintf(text, sizeof text, "%lu %lu %lu %lu", (unsigned long)a, (unsigned long)c, (unsigned long)e, (unsigned long)g);
  while (used == ROOM) {
    waits++;
    pthread_cond_wait(&space, &lock);
    g++;
  }
  queue[used++] = r;
  r->question += strlen(text) + (b + d + f) * 0;
  pthread_cond_signal(&work);
}

SF_HANDLER uint64_t ask(const char *text, size_t length, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) {
  struct request own = {.number = (unsigned)a, .question = a * 17 + length};
  uint64_t before = a * 3, *pointer = &before;
  pthread_mutex_lock(&lock);
  put(&own, a, b, c, d, e, f, before & 7);
  if (hit("local_before", own.number))
    *pointer ^= 4;
  while (!own.done)
    pthread_cond_wait(&answered, &lock);
  if (hit("local_after", own.number))
    *pointer ^= 4;
  /* A worker keeps this one while it wants the other: it gives way. */
  pthread_mutex_lock(&audit);
  audits += 2;
  pthread_mutex_unlock(&audit);
  e += own.answer;
  total += own.answer + *pointer - a * 3 + (unsigned char)text[0] - '0' + e * 0;
  if (hit("state", own.number))
    total ^= 1ull << 33;
  strike(text, own.number);
  pthread_mutex_unlock(&lock);
  return own.answer + f;
}

SF_LOCAL_HANDLER int serve(void) {
  pthread_mutex_lock(&audit);
  audits++;
  pthread_mutex_unlock(&audit);
  pthread_mutex_lock(&lock);
  while (used == 0 && !over)
    pthread_cond_wait(&work, &lock);
  int got = used != 0;
  if (got) {
    struct request *r = queue[0];
    queue[0] = queue[1];
    used--;
    taken++;
    r->answer = r->question * r->question;
    r->done = 1;
    pthread_cond_signal(&space);
    pthread_cond_broadcast(&answered);
  }
  pthread_mutex_unlock(&lock);
  return got;
}

/* Nobody signals: it ends by the clock. */
static unsigned timeouts;
static mtx_t plain;
static cnd_t never;
SF_LOCAL_HANDLER int late(unsigned milliseconds) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += milliseconds * 1000000;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_mutex_lock(&lock);
  int ended = 0;
  for (int i = 0; i < 3; i++) {
    static pthread_cond_t nobody = PTHREAD_COND_INITIALIZER;
    while (ended != ETIMEDOUT)
      ended = pthread_cond_timedwait(hit("other_condition", (unsigned)i) ? &space : &nobody, &lock, &until);
    timeouts += ended == ETIMEDOUT;
    ended = 0;
  }
  pthread_mutex_unlock(&lock);
  mtx_lock(&plain);
  int c11;
  while ((c11 = cnd_timedwait(&never, &plain, &until)) == thrd_success)
    ;
  timeouts += c11 == thrd_timedout;
  mtx_unlock(&plain);
  return ended;
}

/* What is allocated before a wait is freed after it, and a message that is freed is not looked at again. */
static uint64_t lengths;
SF_HANDLER void keeps(char *text, size_t length) {
  sf_input_edge(text, length);
  struct timespec past = {1, 0};
  char *copy = strdup(text);
  free(text);
  pthread_mutex_lock(&lock);
  if (hit("no_wait", (unsigned)length))
    return;
  pthread_cond_timedwait(&answered, &lock, &past);
  lengths += strlen(copy) + (unsigned char)copy[0];
  pthread_mutex_unlock(&lock);
  free(copy);
}

static void *worker(void *unused) {
  while (serve())
    ;
  return unused;
}

static uint64_t results[2];
static void *asker(void *of) {
  unsigned from = of != NULL;
  for (unsigned i = from; i < REQUESTS; i += 2) {
    char text[16];
    int length = snprintf(text, sizeof text, "0 %u", i);
#ifndef STEADFAST_PLAIN
    if (!sf_input(text, (size_t)length, sf_crc32c(0, text, (size_t)length)))
      abort();
#endif
    results[from] += ask(text, (size_t)length, i, 2, 3, 4, 5, 6);
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc > 3)
    place = argv[1], run = atoi(argv[2]), event = atoi(argv[3]);
  mtx_init(&plain, mtx_plain);
  cnd_init(&never);
  pthread_t workers[WORKERS], askers[2];
  for (int i = 0; i < WORKERS; i++)
    pthread_create(&workers[i], NULL, worker, NULL);
  for (int i = 0; i < 2; i++)
    pthread_create(&askers[i], NULL, asker, i ? &over : NULL);
  for (int i = 0; i < 2; i++)
    pthread_join(askers[i], NULL);
  pthread_mutex_lock(&lock);
  over = 1;
  pthread_cond_broadcast(&work);
  pthread_mutex_unlock(&lock);
  for (int i = 0; i < WORKERS; i++)
    pthread_join(workers[i], NULL);
  int ended = late(20);
  for (int i = 0; i < 5; i++) {
    char *text = malloc(32);
    int length = snprintf(text, 32, "%d is its number", i * 1000);
    keeps(text, (size_t)length);
  }
  printf("total %lu results %lu taken %u audits %u timeouts %u ended %d lengths %lu\n",
         (unsigned long)total, (unsigned long)(results[0] + results[1]), taken, audits, timeouts, ended, (unsigned long)lengths);
  return 0;
}
