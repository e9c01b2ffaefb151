/*
 * Threads, locks and the scrubber on state with copies: accounts that handlers of four threads move money between, a
 * journal that other code writes outside handlers under the same locks, and readers that look without a lock at what one
 * thread alone writes. Nothing may ring.
 *
 *     state_threads        prints the sum, which is the same in every run
 */
#include <steadfast/sei.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ACCOUNTS = 64, ROUNDS = 3000 };

struct account {
  long money;
  unsigned short moves; /* neighbours in one word, under one lock each */
  unsigned short seen;
  char owner[20];
};

SF_DUP static struct account accounts[ACCOUNTS];
static pthread_mutex_t locks[ACCOUNTS];
SF_DUP static long *journals[THREADS];
SF_CRC static struct {
  long limit;
  char pad[56];
} rules = {.limit = 1000};

SF_DUP static long *journal_new(void) { return calloc(ROUNDS, sizeof(long)); }

SF_LOCAL_HANDLER long move(unsigned from, unsigned to, long money) {
  unsigned first = from < to ? from : to, second = from < to ? to : from;
  pthread_mutex_lock(&locks[first]);
  if (first != second)
    pthread_mutex_lock(&locks[second]);
  long moved = money < rules.limit ? money : rules.limit;
  accounts[from].money -= moved;
  accounts[to].money += moved;
  accounts[from].moves++;
  accounts[to].moves++;
  snprintf(accounts[to].owner, sizeof accounts[to].owner, "from %u", from);
  if (first != second)
    pthread_mutex_unlock(&locks[second]);
  pthread_mutex_unlock(&locks[first]);
  return moved;
}

static void *work(void *number) {
  unsigned self = (unsigned)(size_t)number, state = self * 977 + 1;
  for (int i = 0; i < ROUNDS; i++) {
    state = state * 1664525 + 1013904223;
    unsigned from = state >> 8 & (ACCOUNTS - 1), to = state >> 16 & (ACCOUNTS - 1);
    journals[self][i] = move(from, to, (long)(state >> 20));
    pthread_mutex_lock(&locks[to]);
    accounts[to].seen++;
    pthread_mutex_unlock(&locks[to]);
  }
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < ACCOUNTS; i++)
    pthread_mutex_init(&locks[i], NULL);
  for (int i = 0; i < THREADS; i++)
    journals[i] = journal_new();
  for (size_t i = 0; i < THREADS; i++)
    pthread_create(&threads[i], NULL, work, (void *)i);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  sf_scrub(0);
  long money = 0, moves = 0, seen = 0, journal = 0;
  for (int i = 0; i < ACCOUNTS; i++) {
    money += accounts[i].money * (i + 1);
    moves += accounts[i].moves;
    seen += accounts[i].seen;
  }
  for (int t = 0; t < THREADS; t++)
    for (int i = 0; i < ROUNDS; i++)
      journal += journals[t][i];
  printf("%ld %ld %ld %ld\n", money, moves, seen, journal);
  return 0;
}
