#include <steadfast/sei.h>
#include <pthread.h>
static pthread_cond_t c;
static pthread_mutex_t m;
static char x;
SF_LOCAL_HANDLER int handle(void) {
#ifdef IN_A_MESSAGE
  pthread_mutex_lock(&m);
  sf_output_append(&x, 1);
#else
  x++; /* without the lock */
#endif
  return pthread_cond_wait(&c, &m);
}
int main(void) { return handle(); }
