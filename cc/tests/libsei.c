/* What libsei gets wrong, one check each; docs/concepts/hardening.md has the list.
   Every check runs inside a handler and says what came out; a plain build says the same. */
#include <string.h>
#include <steadfast/sei.h>
#include <stdlib.h> /* header on both sides of the library's: they must not clash */
#include <stdint.h>
#include <stdio.h>

static union {
  uint64_t word;
  unsigned char bytes[8];
  uint32_t halves[2];
} mixed;
static uint64_t table[200000];
static char text[64], moved[64] = "0123456789abcdefghij";
static double reals[8];
static char *kept;
typedef float vector __attribute__((vector_size(32)));
static vector wide;
static int (*operations[3])(int);
static int twice(int x) { return 2 * x; }
static int square(int x) { return x * x; }
static int negate(int x) { return -x; }

/* 5: a store of eight bytes, then of one inside it; and the other way round. */
SF_LOCAL_HANDLER void sizes(void) {
  mixed.word = 0x1122334455667788;
  *(volatile unsigned char *)&mixed.bytes[3] = 0xaa;
  *(volatile uint32_t *)&mixed.halves[1] += 5;
  *(volatile unsigned char *)&mixed.bytes[7] = 1;
  mixed.word += 3;
}

/* 6: a variable of the caller's frame. */
SF_LOCAL_HANDLER void through(int *x, char *s) {
  *x += 7;
  s[*x % 7] = 'x';
}

/* 2: one address written twice. */
static uint64_t counter;
SF_LOCAL_HANDLER void again(void) {
  counter++;
  *(volatile uint64_t *)&counter += 2;
  counter *= 3;
}

/* 8: more than 8,000 words. */
SF_LOCAL_HANDLER uint64_t many(size_t n) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n; i++) {
    *(volatile uint64_t *)&table[i * 7919 % 200000] += i;
    sum += table[i];
  }
  return sum;
}

/* 9: calloc is zero, nothing is copied where the length is nothing, moves may overlap, realloc keeps the old bytes. */
SF_LOCAL_HANDLER int memory(size_t nothing) {
  int wrong = 0;
  unsigned char *zero = calloc(100, 3);
  for (int i = 0; i < 300; i++)
    wrong += zero[i] != 0;
  memset(zero, 5, 300);
  memcpy(text, "ab", nothing);
  wrong += text[0] != 0;
  memmove(moved + 2, moved, 18);
  memmove(moved, moved + 3, 15);
  kept = realloc(kept, 40);
  if (!kept)
    return -1;
  memset(kept, 'k', 40);
  kept = realloc(kept, 4000);
  for (int i = 0; i < 40; i++)
    wrong += kept[i] != 'k';
  kept = realloc(kept, 10);
  wrong += kept[9] != 'k';
  free(zero);
  return wrong;
}

/* 14: vectors of 32 bytes, long double, calls through pointers. */
SF_LOCAL_HANDLER int kinds(int k) {
  wide += (vector){1, 2, 3, 4, 5, 6, 7, 8};
  reals[k % 8] += 0.25 * k;
  long double l = (long double)k / 3;
  *(volatile double *)&reals[1] = (double)l;
  return operations[k % 3](k);
}

/* 17: what writes runs once. */
SF_LOCAL_HANDLER int prints(int k) {
  char line[32];
  sprintf(line, "line %d", k);
  return puts(line) >= 0;
}

struct large {
  char bytes[40];
  int n;
};
SF_LOCAL_HANDLER struct large by_value(struct large in, int k) {
  in.n += k;
  in.bytes[k % 40] = 'L';
  return in;
}

/* Copied with its padding, which lies on a stack that the first run has left in another state. */
struct padded {
  char c;
  long l;
  short s;
};
static struct padded state[4];
SF_LOCAL_HANDLER void padding(int k) {
  struct padded local;
  local.c = (char)k;
  local.l = k * 3;
  local.s = (short)k;
  struct padded *volatile escapes = &local;
  memcpy(&state[k % 4], escapes, sizeof local);
}

/* Stores whose addresses are not multiples of their size, as in records that lie behind a string: they reach from one
   word into the next, which only the machine knows. */
static unsigned char raw[96];
struct link {
  struct link *next, *previous;
  int size, used;
  short kind;
};
SF_LOCAL_HANDLER unsigned misaligned(unsigned k) {
  *(volatile uint16_t *)(raw + k) += 0x1001;
  *(volatile uint32_t *)(raw + 8 + k) += 0x10000001;
  *(volatile uint64_t *)(raw + 24 + k) += 0x1000000000000001;
  struct link *l = (struct link *)(raw + 48 + k);
  l->next = NULL;
  l->previous = l->next;
  l->size = (int)k;
  l->used += l->size;
  l->kind++;
  raw[31] ^= 5;
  unsigned sum = 0;
  for (size_t i = 0; i < sizeof raw; i++)
    sum = sum * 31 + raw[i];
  return sum;
}

static int deep(int n) { return n ? deep(n - 1) + 1 : 0; }
SF_LOCAL_HANDLER int nested(int n) {
  again();
  padding(n);
  return deep(n) + state[n % 4].s - n;
}

int main(void) {
  operations[0] = twice, operations[1] = square, operations[2] = negate;
  for (int i = 0; i < 20; i++) {
    int local = i;
    char s[8] = "abcdefg";
    sizes();
    through(&local, s);
    again();
    printf("%lx %d %s %lu\n", (unsigned long)mixed.word, local, s, (unsigned long)counter);
    printf("memory %d %s\n", memory(0), moved);
    printf("kinds %d %f %f\n", kinds(i), (double)wide[7], reals[1]);
    printf("prints %d\n", prints(i));
    struct large l = {.bytes = "large", .n = 3};
    l = by_value(l, i);
    printf("misaligned %u\n", misaligned((unsigned)i % 8));
    printf("large %d %d nested %d\n", l.n, l.bytes[i % 40], nested(i * 10));
  }
  printf("many %lu\n", (unsigned long)many(10000));
  printf("many %lu\n", (unsigned long)many(150000));
  printf("many %lu\n", (unsigned long)many(10));
  return 0;
}
