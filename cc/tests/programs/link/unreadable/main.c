// One handler, so that what was hardened is looked at when the program is linked.
#include <steadfast/sei.h>

long total;

SF_LOCAL_HANDLER void handle(const char *message, unsigned long size) {
  for (unsigned long i = 0; i < size; i++)
    total += message[i];
}

int main(void) {
  char message[] = "word";
  handle(message, 4);
  return total == 'w' + 'o' + 'r' + 'd' ? 0 : 1;
}
