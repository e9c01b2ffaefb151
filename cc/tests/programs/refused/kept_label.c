#include <steadfast/sei.h>
static void *at;
static int n;
SF_LOCAL_HANDLER int handle(int k) {
  if (at)
    goto *at;
  at = k ? &&one : &&two;
two:
  n += k;
one:
  return n;
}
int main(void) {
  handle(1);
  return handle(2);
}
