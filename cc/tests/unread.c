/* A message's length that the handler is handed and does not read: the policy does (unread.policy). */
#include <stdio.h>

static int sum;

void take(const char *message, unsigned long length) { sum += message[0]; }

int main(void) {
  for (int i = 0; i < 20; i++) {
    char message[8];
    int length = snprintf(message, sizeof message, "%c%d", 'a' + i, i);
    take(message, (unsigned long)length);
  }
  printf("%d\n", sum);
  return 0;
}
