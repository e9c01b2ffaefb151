#include <stdio.h>
int handle(char *text);
int racy;
int main(void) {
  char text[] = "some words";
  for (int i = 0; i < 3; i++) {
    text[0]++;
    printf("%d\n", handle(text));
  }
}
