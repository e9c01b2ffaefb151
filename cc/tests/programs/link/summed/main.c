#include <steadfast/sei.h>
#include <stdio.h>
long parse(long);
static long twice(long k) { return 2 * parse(k); }
SF_LOCAL_HANDLER long handle(long k) { return parse(k) + twice(k); }
int main(void) {
  handle(3);
  printf("%ld\n", handle(4));
}
