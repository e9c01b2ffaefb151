#include <steadfast/sei.h>
#include <stdio.h>
static FILE *f;
SF_LOCAL_HANDLER int handle(void) {
  fputs("x", f);
  return fgetc(f);
}
int main(void) {
  f = tmpfile();
  return !handle();
}
