#include <steadfast/sei.h>
#include <stdio.h>
static int n;
static char *word;
SF_LOCAL_HANDLER void handle(void) { n = sscanf("12 abc", "%d %ms", &n, &word); }
int main(void) {
  handle();
  return n;
}
