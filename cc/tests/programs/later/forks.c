#include <steadfast/sei.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static unsigned long n;
static volatile int hits, chld;
SF_LOCAL_HANDLER void handle(unsigned long k) { n += k; }
SF_LOCAL_HANDLER void text(int k) {
  char b[8];
  snprintf(b, sizeof b, "%d", k);
  n += (unsigned long)(b[0] - '7');
}
SF_LOCAL_HANDLER void wrong(void) {
  int r = sf_run() == 2;
  n += 1 + r;
}
static void on(int s) {
  if (s == SIGUSR1)
    hits++;
  else
    chld++;
}
int main(void) {
  signal(SIGUSR1, on);
  signal(SIGCHLD, on);
  int first = open("/dev/null", O_RDONLY);
  close(first);
  handle(1);
  text(7);
  int again = open("/dev/null", O_RDONLY);
  close(again);
  pid_t child = fork();
  for (int i = 0; i < 2000; i++) {
    handle(2);
    if (i % 10 == 0)
      raise(SIGUSR1);
  }
  if (child == 0)
    _exit(n == 4001 && hits == 200 ? 7 : 1);
  int status = 0;
  while (waitpid(-1, &status, 0) < 0 && errno == EINTR) {
  }
  pid_t bad = fork();
  if (bad == 0) {
    wrong();
    _exit(0);
  }
  int told = 0;
  while (waitpid(bad, &told, 0) < 0 && errno == EINTR) {
  }
  printf("%lu %d %d %d %d %d\n", n, hits, WEXITSTATUS(status), chld, first == again, WEXITSTATUS(told));
  return 0;
}
