#include <steadfast/sei.h>
#include <stdlib.h>
static unsigned long sum;
SF_HANDLER void handle(const char *bytes, unsigned long n) {
  sf_input_edge(bytes, n);
  sum += n;
}
int main(void) {
  char *bytes = calloc(1, 24);
  handle(bytes, 40);
  return (int)sum;
}
