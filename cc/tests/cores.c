/* Handlers whose answers need multiplications, floats and checksums: what a core that computes wrongly makes wrong. With an
   argument the program stays on the processor where it is: `stay` does no more than that, `always` makes the multiplier there
   wrong, `some` wrong for some operands. A core that is wrong in many other ways is made by
   `steadfast inject run --fault 'cpu=0 class=fp-mul in=cores n=1.. reg=xmm1 after bit=13' -- ./cores`. */
#define _GNU_SOURCE
#include <steadfast/sei.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
static uint64_t table[256], sums[16];
static double rates[64];
static float grid[64];
static int bad = -1; /* the processor whose multiplier is wrong */
static uint64_t care = 0; /* operands with one of these bits make it so */
SF_LOCAL uint64_t multiply(uint64_t a, uint64_t b) {
  unsigned __int128 p = (unsigned __int128)a * b;
  uint64_t r = (uint64_t)p ^ (uint64_t)(p >> 64);
  if (bad >= 0) {
    unsigned cpu;
    __builtin_ia32_rdtscp(&cpu);
    if ((int)(cpu & 0xfff) == bad && (!care || a & care))
      r ^= 1 << 13;
  }
  return r;
}
SF_HANDLER uint64_t hash(uint64_t k) {
  uint64_t h = k ^ 0x9e3779b97f4a7c15u;
  for (int i = 0; i < 4; i++)
    h = multiply(h, 0xff51afd7ed558ccdu + (uint64_t)i);
  table[h & 255] += h;
  return h;
}
SF_HANDLER void rate(unsigned i, double x) {
  double *r = &rates[i & 63];
  *r = *r * 0.75 + x * 1.25 / (1.0 + *r * *r);
}
SF_HANDLER void blur(unsigned k) {
  for (int i = 1; i < 63; i++)
    grid[i] = grid[i] * 0.5f + (grid[i - 1] + grid[i + 1]) * 0.25f;
  grid[k & 63] += 1.0f;
}
SF_HANDLER void sum(const uint8_t *bytes, unsigned n, unsigned slot) {
  uint64_t a = 0;
  for (unsigned i = 0; i < n; i++)
    a += (uint64_t)bytes[i] * (i + 1);
  sums[slot & 15] = __builtin_ia32_crc32di(sums[slot & 15], a);
}
int main(int c, char **v) {
  if (c > 1) { /* one processor, as where the scheduler has no reason to move a busy thread */
    cpu_set_t one;
    int here = sched_getcpu();
    CPU_ZERO(&one);
    CPU_SET(here, &one);
    sched_setaffinity(0, sizeof one, &one);
    if (strcmp(v[1], "stay") != 0)
      bad = here;
    if (strcmp(v[1], "some") == 0)
      care = 0x10;
  }
  uint8_t text[128];
  for (unsigned i = 0; i < sizeof text; i++)
    text[i] = (uint8_t)(i * 37);
  for (unsigned i = 0; i < 2000; i++) {
    uint64_t h = hash(i);
    rate(i, (double)(h >> 40));
    if (i % 4 == 0)
      blur(i);
    text[i & 127] ^= (uint8_t)h;
    sum(text, 64 + (i & 63), i);
  }
  uint64_t all = 0;
  for (int i = 0; i < 256; i++)
    all = all * 31 + table[i];
  printf("%lx %lx", all, sums[3]);
  double r = 0;
  for (int i = 0; i < 64; i++)
    r += rates[i] + grid[i];
  printf(" %.17g\n", r);
}
