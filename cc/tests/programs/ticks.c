#include <steadfast/sei.h>
#include <stdio.h>
unsigned long a[4];
SF_PURE unsigned long ticks(void);
unsigned long ticks(void) {
  static unsigned long t;
  return ++t;
}
SF_LOCAL_HANDLER void handle(void) {
  a[0] = 1;
  a[1] = ticks();
  a[2] = a[1];
}
int main(void) {
  handle();
  return 0;
}
