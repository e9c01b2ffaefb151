#include <steadfast/sei.h>
#include <stdio.h>
static long total;
static long one(long k) { return total += k; }
static long (*choose(void))(long) { return one; }
long pick(long) __attribute__((ifunc("choose")));
__attribute__((target_clones("avx2", "default"))) long wide(long k) { return total += 10 * k; }
SF_LOCAL_HANDLER long handle(long k) { return pick(k) + wide(k); }
int main(void) {
  handle(3);
  printf("%ld %ld\n", handle(4), total);
}
