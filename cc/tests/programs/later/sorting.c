#include <steadfast/sei.h>
#include <stdlib.h>
static int a[9];
static int by(const void *x, const void *y) { return *(int *)x - *(int *)y; }
SF_LOCAL_HANDLER void handle(void) { qsort(a, 9, 4, by); }
int main(void) {
  handle();
  return 0;
}
