/* Loops whose stores fill ranges (cc/pass/ranges.cpp), and stores that are looked up with their neighbours: plain and hardened they leave the
   same bytes. Pieces end at pages, loops are left in the middle or go on from one range to the next, ranges lie over each other and over
   words that are logged for themselves; some are in frames, and some are ignored. Another thread counts in what lies directly behind a
   range, in the piece that is read when it is opened: none of its counts is lost. */
#include <steadfast/sei.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 16384

static unsigned char from[SIZE], to[SIZE] __attribute__((aligned(4096)));
static struct pair {
  uint32_t a;
  uint16_t b, c;
} pairs[600];
static struct near {
  void *next;
  uint32_t a;
  uint16_t b;
  uint8_t c, d;
  uint32_t e[2];
} nodes[8];
static uint32_t numbers[600];
static uint64_t input;

SF_LOCAL_HANDLER void bytes(size_t n) {
  for (size_t i = 0; i < n; i++) {
    to[4090 + i] = (unsigned char)(from[i] + input);
    __asm__ volatile("");
  }
}

SF_LOCAL_HANDLER void vectors(size_t n) {
  for (size_t i = 0; i < n; i++)
    to[i + 3] = (unsigned char)(from[i] + input);
}

SF_LOCAL_HANDLER void text(size_t n) {
  unsigned char *d = to + n;
  const unsigned char *s = from + n;
  while ((*d++ = *s++))
    ;
}

SF_LOCAL_HANDLER void two(size_t n) {
  for (size_t i = 0; i < n; i++) {
    pairs[i].b = (uint16_t)(i ^ input);
    pairs[i].a = (uint32_t)i;
    pairs[i].c = (uint16_t)(pairs[i].b * 3);
    if (pairs[i].a == 477)
      break;
    numbers[i] = (uint32_t)i * 3;
  }
}

/* Over itself, and words beside it that it will come to, or has come from. */
SF_LOCAL_HANDLER void over(size_t n) {
  for (size_t i = 0; i < n; i++) {
    to[i + 3] = to[i] ^ 5;
    to[(input * 31 + i * 7) % SIZE] += 3;
  }
  for (size_t i = 0; i < n; i++)
    to[i + 9] += (unsigned char)i;
}

SF_LOCAL_HANDLER void rows(size_t n) {
  for (size_t r = 0; r < 5; r++)
    for (size_t i = 0; i < n; i++)
      to[n * r + i] ^= (unsigned char)(r + input);
}

SF_LOCAL_HANDLER void local(size_t n) {
  char own[200] = {0};
  volatile char *other = own;
  for (size_t i = 0; i < n && i < sizeof own; i++)
    own[i] = (char)(from[i] ^ input);
  to[(unsigned char)other[n % 200]] = 1;
}

__attribute__((noinline)) static void fill(unsigned char *d, size_t n, unsigned char byte) {
  for (size_t i = 0; i < n; i++) {
    d[i] = byte;
    __asm__ volatile("");
  }
}

SF_LOCAL_HANDLER unsigned frames(size_t n) {
  unsigned char own[300];
  memset(own, 0, sizeof own);
  fill(own + 1, n, (unsigned char)input);
  fill(to + 5, n, own[n]);
  return own[n];
}

SF_LOCAL_HANDLER void ignores(size_t n) {
  fill(to, n, 1);
#ifndef STEADFAST_PLAIN
  sf_ignore(to + 8000, 256);
#endif
  fill(to + 7900, n, 2);
  fill(to + 8300, n, 3);
}

SF_LOCAL_HANDLER void fields(size_t n) {
  struct near *p = &nodes[n % 8];
  p->b = (uint16_t)input;
  p->next = NULL;
  ((unsigned char *)&p->next)[1] ^= (unsigned char)n;
  p->a = (uint32_t)n;
  p->d = 7;
  p->c = (uint8_t)(input >> 3);
  p->e[0] = p->a;
  p->e[1] = p->b;
}

static uint64_t sum(void) {
  uint64_t s = 0;
  for (size_t i = 0; i < sizeof to; i++)
    s = s * 31 + to[i];
  for (size_t i = 0; i < sizeof pairs; i++)
    s = s * 31 + ((unsigned char *)pairs)[i];
  for (size_t i = 0; i < 600; i++)
    s = s * 31 + numbers[i];
  for (size_t i = 0; i < 8; i++)
    s = s * 31 + nodes[i].a + nodes[i].b + nodes[i].c + nodes[i].d + nodes[i].e[1] + (uintptr_t)nodes[i].next;
  return s;
}

static struct {
  unsigned char mine[17];
  volatile unsigned char other;
  volatile uint64_t others;
} shared __attribute__((aligned(64)));
static volatile int goes = 1;
static unsigned long lost;

static void *counts(void *unused) {
  for (uint64_t n = 1; goes; n++) {
    shared.other = (unsigned char)n;
    shared.others = n;
    lost += shared.other != (unsigned char)n || shared.others != n;
  }
  return unused;
}

SF_LOCAL_HANDLER void beside(size_t n) { fill(shared.mine, n, (unsigned char)input); }

int main(void) {
  static void (*const all[])(size_t) = {bytes, vectors, text, two, over, rows, local, ignores, fields};
  static const char *const names[] = {"bytes", "vectors", "text", "two", "over", "rows", "local", "ignores", "fields"};
  for (size_t i = 0; i < SIZE; i++)
    from[i] = (unsigned char)(i * 37 + 1 + i / 251);
  for (size_t k = 0; k < sizeof all / sizeof *all; k++)
    for (size_t n = 0; n < 590; n += 1 + n / 5) {
      input = n + k;
      all[k](n);
      printf("%s %zu %llx\n", names[k], n, (unsigned long long)sum());
    }
  for (size_t n = 0; n < 290; n += 1 + n / 5)
    printf("frames %u %llx\n", frames(n), (unsigned long long)sum());
  pthread_t other;
  pthread_create(&other, NULL, counts, NULL);
  for (size_t i = 0; i < 20000; i++) {
    input = i;
    beside(sizeof shared.mine - i % 3);
  }
  goes = 0;
  pthread_join(other, NULL);
  printf("lost %lu, last %d\n", lost, shared.mine[14]);
  return 0;
}
