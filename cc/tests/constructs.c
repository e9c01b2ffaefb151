/* Constructs of C that reach memory, or another place of the code, by ways of their own. */
#ifdef __OPTIMIZE__
#define _FORTIFY_SOURCE 2
#endif
#define _GNU_SOURCE
#include <steadfast/sei.h>

#include <alloca.h>
#include <complex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Also names of the C library's, which this file does not mean: no header above declares them. */
static long asked;
static int isatty(int k) { return asked += k, (int)(asked % 7); }
static int sleep(int k) { return asked -= 2 * k, (int)(asked % 5); }

/* Computed gotos: by a table of the function's, by one in its frame, by differences. */
static uint8_t code[64];
static long cells[8], steps;

static long threaded(void) {
  static const void *const table[] = {&&add, &&move, &&jump, &&end};
  long at = 0, sum = 0;
  goto *table[code[at] & 3];
add:
  cells[at & 7] += ++steps;
  goto *table[code[++at & 63] & 3];
move:
  cells[(at + 1) & 7] = cells[at & 7] ^ at;
  goto *table[code[++at & 63] & 3];
jump:
  at += 3;
  if (at > 200)
    goto end;
  goto *table[code[at & 63] & 3];
end:
  for (int i = 0; i < 8; i++)
    sum = sum * 31 + cells[i];
  return sum;
}

static long near(int k) {
  static const int by[] = {&&one - &&one, &&two - &&one, &&three - &&one};
  goto *(&&one + by[k % 3]);
one:
  return cells[0] += 1;
two:
  return cells[1] += 2;
three:
  return cells[2] += 3;
}

static long framed(int k) {
  void *ways[] = {&&left, &&right};
  void *to = ways[k & 1];
  for (;;) {
    goto *to;
  left:
    cells[3] += k;
    to = ways[1];
    continue;
  right:
    return cells[3] -= 7;
  }
}

SF_LOCAL_HANDLER long gotos(int k) {
  for (int i = 0; i < 64; i++)
    code[i] = (uint8_t)(k * 37 + i * i * 11);
  code[63] = 3;
  return threaded() + near(k) + framed(k);
}

/* Lengths that only running tells, fields of bits, packed, overlaid and widely aligned objects. */
struct __attribute__((packed)) tight {
  uint8_t a;
  uint64_t b;
  uint16_t c;
  uint32_t d;
};
struct bits {
  unsigned a : 3, b : 13, c : 1;
  int64_t d : 41;
  unsigned e : 5;
};
struct wide {
  _Alignas(64) uint64_t a;
  uint8_t b;
};
union any {
  double d;
  uint64_t u;
  uint8_t bytes[12];
  struct bits f;
};
static struct tight tight[5];
static struct bits bits[4];
static struct wide wide[3];
static union any any[6];
static _Thread_local struct tight mine;
static unsigned _BitInt(37) odd[3];
static __int128 huge;

SF_LOCAL_HANDLER long objects(int k) {
  struct tight *t = &tight[k % 5];
  t->b += (uint64_t)k << 33;
  t->d ^= (uint32_t)k * 77;
  t->c++;
  mine = *t;
  mine.a += (uint8_t)k;
  struct bits *f = &bits[k % 4];
  f->b += 5;
  f->d -= (int64_t)k << 20;
  f->e ^= 3;
  f->c = !f->c;
  wide[k % 3] = (struct wide){.a = wide[(k + 1) % 3].a + 1, .b = (uint8_t)k};
  union any *u = &any[k % 6];
  u->d = k / 3.0;
  u->bytes[k % 12] ^= 0x55;
  u->f.b += 1;
  odd[k % 3] += 12345678901;
  huge = huge * 3 + k;
  int n = 3 + k % 20;
  char line[n], *copy = alloca((size_t)n + 8);
  memset(line, 'a' + k % 26, (size_t)n);
  memcpy(copy, line, (size_t)n);
  copy[n - 1] = 0;
  uint64_t sum = strlen(copy) + t->b + mine.a + (uint64_t)f->d + wide[k % 3].a + u->u;
  return (long)(sum + (uint64_t)odd[k % 3] + (uint64_t)(huge >> 7));
}

/* Numbers that are more than a word, and rounding that the program minds. */
static double _Complex turned = 1;
static long double exact = 1;
static float rounded[4];

__attribute__((noinline)) static double careful(double a, double b) {
#pragma STDC FENV_ACCESS ON
  return a / b - a * b;
}

SF_LOCAL_HANDLER long numbers(int k) {
  if (k % 8 == 0)
    turned = 1; /* what it becomes must fit the result */
  turned *= (k % 5 + 1) * 0.5 + I * (0.3 * (k % 3));
  exact = exact * 1.0000001L + k;
  rounded[k % 4] += (float)careful(k + 1, 3);
  return (long)(creal(turned) * 1000) + (long)cimag(turned) + (long)exact + (long)rounded[k % 4];
}

/* Arguments by list, handed on; calls that must be the last. */
static long total(int n, va_list list) {
  long sum = 0;
  while (n--)
    sum += va_arg(list, int) + (long)va_arg(list, double);
  return sum;
}
static long summed(int n, ...) {
  va_list list, again;
  va_start(list, n);
  va_copy(again, list);
  long sum = total(n, list) * 3 + total(n, again);
  va_end(again);
  va_end(list);
  cells[4] += sum;
  return sum;
}
static long odd_one(long k);
static long even_one(long k) {
  cells[5] += k;
  if (k <= 0)
    return 0;
  __attribute__((musttail)) return odd_one(k - 1);
}
static long odd_one(long k) {
  cells[6] ^= k;
  if (k <= 0)
    return 1;
  __attribute__((musttail)) return even_one(k - 1);
}

SF_LOCAL_HANDLER long calls(int k) {
  return summed(3, k, 1.5, k + 1, 2.5 * k, k + 2, 0.25) + even_one(k) + isatty(k) + sleep(k);
}

/* Some elements of a vector, stores past the cache, assembly that computes, barriers, counters of the frame's own. */
static int32_t from[256], to[256];
static int64_t spread[256];
static uint64_t past[8];

__attribute__((noinline)) static void some(int limit) {
  for (int i = 0; i < 256; i++)
    if (from[i] > limit)
      to[i] = from[i] * 3 + 1;
}
__attribute__((noinline)) static void scattered(int limit) {
  for (int i = 0; i < 256; i++)
    if (from[i] > limit)
      spread[from[i] & 255] = i;
}

SF_LOCAL_HANDLER long vectors(int k) {
  for (int i = 0; i < 256; i++)
    from[i] = (i * 7919 + k * 104729) % 1000 - 300;
  some(100);
  scattered(300);
  __builtin_nontemporal_store((uint64_t)k * 3, &past[k % 8]);
  __builtin_ia32_sfence();
  __builtin_ia32_pause();
  uint32_t turned_round = (uint32_t)k;
  __asm__("bswapl %0" : "+r"(turned_round));
  __asm__ volatile("" ::: "memory");
  int counter = k;
  __atomic_fetch_add(&counter, 5, __ATOMIC_SEQ_CST);
  uint64_t sum = turned_round + (uint64_t)counter + past[k % 8];
  for (int i = 0; i < 256; i++)
    sum = sum * 31 + (uint64_t)to[i] + (uint64_t)spread[i];
  return (long)sum;
}

int main(void) {
  for (int k = 0; k < 60; k++)
    printf("%ld %ld %ld %ld %ld %ld\n", gotos(k), objects(k), numbers(k), calls(k), vectors(k), asked + steps);
  return 0;
}
