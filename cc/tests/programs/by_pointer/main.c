#include <steadfast/sei.h>
#include <stdio.h>
int count(int);
void note(int);
int read_it(void);
int any(int, ...);
int twice(int);
struct {
  int (*count)(int);
  void (*note)(int);
  int (*read)(void);
  int (*any)(int, ...);
  int (*twice)(int);
} how = {count, note, read_it, any, twice};
int out[5], made;
int in_place(int k) {
  made++;
  return 3 * k;
}
SF_LOCAL_HANDLER void handle(int all) {
  out[0] = how.count(2);
  how.note(5);
  out[1] = how.read();
  out[2] = how.twice(7);
  if (all)
    out[3] = how.any(1, 2);
}
int main(int argc, char **argv) {
  if (argc > 9)
    how.count = 0, how.note = 0, how.read = 0, how.any = 0, how.twice = 0;
  for (int i = 0; i < 2; i++)
    handle(0), printf("%d %d %d %d\n", out[0], out[1], out[2], made);
  fflush(stdout);
  handle(1);
}
