/* Children of a program whose threads take and give back protected memory all the time. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *take(size_t n) { return malloc(n); }
void handle(long *counter) { ++*counter; }

static atomic_int over;
static void *churn(void *unused) {
  while (!over) {
    void *a = take(100), *b = take(9000);
    free(a), free(b);
  }
  return unused;
}

int main(void) {
  long *counter = take(sizeof *counter);
  *counter = 0;
  pthread_t threads[2];
  for (int i = 0; i < 2; i++)
    pthread_create(&threads[i], NULL, churn, NULL);
  int right = 0;
  for (int i = 0; i < 400; i++) {
    handle(counter);
    pid_t child = fork();
    if (child == 0) {
      alarm(5);
      char *text = take(50);
      memset(text, i, 50);
      handle(counter);
      _exit(*counter == i + 2 && text[49] == (char)i ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    right += status == 0;
  }
  over = 1;
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], NULL);
  printf("%d of 400\n", right);
  return right != 400;
}
