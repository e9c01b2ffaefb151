#include <steadfast/sei.h>
unsigned long a;
SF_LOCAL_HANDLER void handle(void) { a = sf_run() == 2; }
int main(void) {
  handle();
  return 0;
}
