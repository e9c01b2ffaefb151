#include <stdio.h>
int twice(int);
int length(const char *);
extern int kept;
int total;
void handle(int n) { total += length("four") + n; }
void reach(int n) { total += twice(n); }
int main(void) {
  for (int i = 0; i < 100; i++)
    handle(i);
  reach(1);
  total += twice(4);
  printf("%d %d\n", total, kept);
}
