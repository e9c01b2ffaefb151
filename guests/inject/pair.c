/* A server with a thread for each of two clients, which are answered the square of each digit that they send. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

__attribute__((noinline)) long square(long digit) {
  __asm__ volatile("" : "+r"(digit));
  return digit * digit;
}

static void *serve(void *of) {
  int client = (int)(intptr_t)of;
  char line[16], reply[32];
  while (read(client, line, sizeof line) > 0) {
    int length = snprintf(reply, sizeof reply, "%ld\n", square(line[0] - '0'));
    if (write(client, reply, (size_t)length) != length) break;
  }
  return NULL;
}

int main(void) {
  int listening = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7008), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listening, (struct sockaddr *)&at, sizeof at) || listen(listening, 4)) return 1;
  for (;;) {
    pthread_t thread;
    int client = accept(listening, NULL, NULL);
    pthread_create(&thread, NULL, serve, (void *)(intptr_t)client);
  }
}
