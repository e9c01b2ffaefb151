#include <stdio.h>
#include <stdlib.h>
int crashes, total;
int *wrong[3];
void handle(int n) {
  total += n;
  if (n == 5 && crashes < 2)
    total += *wrong[crashes++];
}
int main(int argc, char **argv) {
  for (int i = 0; i < 2; i++)
    wrong[i] = (int *)strtoul(argv[1 + i], 0, 0);
  for (int i = 0; i < 10; i++)
    handle(i);
  printf("%d\n", total);
  return argc == 0;
}
