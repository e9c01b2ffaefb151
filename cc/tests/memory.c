/* What the runtime keeps for a thread: private memory of the process with 100 threads, before any handler, after small handlers,
   after two that write 16,384 words, and after small ones again; status 1 if more is kept then. `steadfast cc -O2 memory.c -o memory && ./memory` */
#include <steadfast/sei.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define T 100
static uint64_t words[T][1 << 16];
static pthread_barrier_t at; static int first, big, after;
SF_LOCAL_HANDLER void small(unsigned t) { for (int i = 0; i < 16; i++) words[t][i * 8] += i; }
SF_LOCAL_HANDLER void large(unsigned t) { for (int i = 0; i < 1 << 14; i++) words[t][i] += i; }
static long kib(void) { char l[200]; long v = 0, a = 0; FILE *f = fopen("/proc/self/smaps_rollup", "r"); while (fgets(l, sizeof l, f)) if (sscanf(l, "Private_Dirty: %ld", &v) == 1) a = v; fclose(f); return a; }
static void *work(void *of) {
  unsigned t = (unsigned)(uintptr_t)of;
  memset(words[t], 1, sizeof words[t]);
  volatile char frame[8192]; memset((void*)frame, 1, sizeof frame); /* the thread's own stack is not the runtime's */
  pthread_barrier_wait(&at); pthread_barrier_wait(&at);
  for (int i = 0; i < first; i++) small(t);
  pthread_barrier_wait(&at); pthread_barrier_wait(&at);
  for (int i = 0; i < big; i++) large(t);
  pthread_barrier_wait(&at); pthread_barrier_wait(&at);
  for (int i = 0; i < after; i++) small(t);
  pthread_barrier_wait(&at); pthread_barrier_wait(&at);
  return NULL;
}
int main(void) {
  first = 2000; big = 2; after = 4000;
  pthread_barrier_init(&at, NULL, T + 1); pthread_t id[T];
  for (long i = 0; i < T; i++) pthread_create(&id[i], NULL, work, (void *)i);
  long m[4];
  for (int k = 0; k < 4; k++) { pthread_barrier_wait(&at); m[k] = kib(); pthread_barrier_wait(&at); }
  for (int i = 0; i < T; i++) pthread_join(id[i], NULL);
  printf("KiB a thread: small handlers %.1f, after large ones (16384 words) %.1f, small again %.1f\n", (m[1] - m[0]) / (double)T, (m[2] - m[0]) / (double)T, (m[3] - m[0]) / (double)T);
  return m[3] > m[1] + 2 * T; /* 2 KiB a thread, for what the threads themselves have touched */
}
