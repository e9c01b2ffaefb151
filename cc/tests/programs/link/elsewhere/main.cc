#include <steadfast/sei.h>
#include <cstdio>
static long *kept;
SF_LOCAL_HANDLER long handle(long k) {
  delete kept;
  kept = new long(k);
  return *kept;
}
int main() {
  kept = new long(1);
  std::printf("%ld\n", handle(3));
}
