#include <steadfast/sei.h>
#include <pthread.h>
static unsigned long own, sum;
static volatile int step;
SF_LOCAL_HANDLER void handle(unsigned long *at) { *at += 3; }
static void *second(void *none) {
  handle(&own);
  step = 1;
  while (step != 2)
    ;
  handle(&sum);
  return none;
}
int main(void) {
  pthread_t other;
  pthread_create(&other, NULL, second, NULL);
  while (step != 1)
    ;
  handle(&sum);
  step = 2;
  pthread_join(other, NULL);
  return sum != 6;
}
