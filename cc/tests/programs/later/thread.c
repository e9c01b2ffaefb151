#include <steadfast/sei.h>
#include <pthread.h>
static int n;
SF_LOCAL_HANDLER void handle(void) { n++; }
static void *other(void *p) {
  handle();
  return p;
}
int main(void) {
  pthread_t t;
  handle();
  pthread_create(&t, 0, other, 0);
  pthread_join(t, 0);
  return 0;
}
