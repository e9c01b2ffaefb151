#include <steadfast/sei.h>
#include <stdio.h>
static long total;
SF_LOCAL_HANDLER long handle(long k) { return total += k; }
int main(void) {
  handle(3);
  printf("%ld\n", handle(4));
  return 0;
}
