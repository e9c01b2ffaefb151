/* A daemon that leaves /proc behind before its first handler: in its first thread, in another, and in a child. With -DLATER, for
   --validate=async, in one thread; what it counts in memory that it shares is lost where the validator writes there. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <steadfast/sei.h>

static int total, *counted;

SF_LOCAL_HANDLER int handle(int n) {
  int local[64] = {n};
  for (int i = 1; i < 64; i++)
    local[i] = local[i - 1] + i;
  ++*counted;
  return total += local[63];
}

#ifdef LATER
static void others(void) {
  for (int i = 0; i < 20000; i++)
    handle(0);
  total = 4035;
}
#else
static void *thread(void *none) {
  handle(2);
  return none;
}

static void others(void) {
  pthread_t other;
  pthread_create(&other, NULL, thread, NULL);
  pthread_join(other, NULL);
}
#endif

int main(int argc, char **argv) {
  if (geteuid() != 0 && unshare(CLONE_NEWUSER) != 0)
    return 3;
  if (argc > 1 && (chroot(argv[1]) != 0 || chdir("/") != 0))
    return 2;
  counted = mmap(NULL, sizeof *counted, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  handle(1);
  others();
  fflush(stdout);
  pid_t child = fork();
  if (child == 0)
    _exit(handle(3) == 6054 ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  printf("%d %d %d\n", total, WEXITSTATUS(status), *counted);
  return 0;
}
