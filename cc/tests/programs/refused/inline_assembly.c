#include <steadfast/sei.h>
int x;
SF_LOCAL_HANDLER void handle(void) { __asm__ volatile("movl $1, %0" : "=m"(x)); }
int main(void) {
  handle();
  return x;
}
