#include <steadfast/sei.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static volatile int inside;
static unsigned long sum;
static double took;
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}
SF_LOCAL_HANDLER void handle(unsigned long n) {
  inside = 1;
  unsigned long s = sum;
  for (unsigned long i = 0; i < n; i++)
    s = s * 31 + i;
  sum = s;
}
static void *work(void *none) {
  double from = now();
  handle(200000000);
  took = now() - from;
  return none;
}
int main(void) {
  int fd = open("/dev/null", O_WRONLY);
  pthread_t other;
  pthread_create(&other, NULL, work, NULL);
  while (!inside)
    ;
  double from = now();
  long put = write(fd, "x", 1);
  double waited = now() - from;
  pthread_join(other, NULL);
  puts(put == 1 && waited * 8 > took ? "held" : "left");
  return 0;
}
