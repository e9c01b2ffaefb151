#include <steadfast/sei.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static unsigned long n;
static volatile int hits;
SF_LOCAL_HANDLER void handle(unsigned long k) { n += k; }
static void on(int s) { hits += s == SIGUSR1; }
int main(void) {
  signal(SIGUSR1, on);
  handle(1);
  pid_t child = fork();
  for (int i = 0; i < 2000; i++) {
    handle(2);
    raise(SIGUSR1);
  }
  if (child == 0)
    _exit(n == 4001 && hits == 2000 ? 7 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  printf("%lu %d %d\n", n, hits, WEXITSTATUS(status));
  return 0;
}
