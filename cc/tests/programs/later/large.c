#include <steadfast/sei.h>
#include <stdio.h>
#include <string.h>
static char state[100000];
static unsigned long sum;
__attribute__((noinline)) static void fill(char *p, unsigned n, unsigned x) {
  for (unsigned i = 0; i < n; i++)
    p[i] = (char)(x * i + i * i % 7);
  __asm__ volatile("" ::: "memory");
}
SF_LOCAL_HANDLER void frames(unsigned x) {
  char local[60000];
  fill(local, sizeof local, x);
  for (unsigned i = 0; i < sizeof local; i += 100)
    sum += local[i];
  memcpy(state, local, sizeof local);
}
SF_LOCAL_HANDLER void words(unsigned x) {
  for (unsigned i = 0; i < sizeof state; i += 8)
    sum += state[i] + x;
}
int main(void) {
  for (unsigned i = 0; i < 20; i++) {
    frames(i);
    words(i);
  }
  printf("%lu\n", sum);
  return 0;
}
