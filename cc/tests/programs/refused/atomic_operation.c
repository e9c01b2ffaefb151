#include <steadfast/sei.h>
int x;
SF_LOCAL_HANDLER void handle(void) { __atomic_fetch_add(&x, 1, 5); }
int main(void) {
  handle();
  return x;
}
