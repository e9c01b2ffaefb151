#include <steadfast/sei.h>
#include <stdio.h>
int isatty(int);
SF_LOCAL_HANDLER int handle(int k) { return isatty(k); }
int main(void) {
  handle(3);
  printf("%d\n", handle(4));
}
