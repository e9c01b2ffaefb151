#include <steadfast/sei.h>
#include <pthread.h>
static pthread_mutex_t m;
SF_LOCAL_HANDLER void handle(void) { pthread_mutex_lock(&m); }
int main(void) {
  handle();
  return 0;
}
