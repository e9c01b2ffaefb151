#include <steadfast/sei.h>
#include <stdio.h>
long total;
static long spare(long k) { return total += k; }
long hook(long) __attribute__((weak, alias("spare")));
long missing(long) __attribute__((weak));
SF_LOCAL_HANDLER long handle(long k) { return hook(k) + (missing ? missing(k) : 1); }
int main(void) {
  handle(3);
  printf("%ld %ld\n", handle(4), total);
}
