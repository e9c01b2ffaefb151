#include <steadfast/sei.h>
#include <string.h>
char out[160];
static int strikes;
int give(const char *p, int n);
int give(const char *p, int n) { return p[n - 1]; }
SF_LOCAL void strike(void);
void strike(void) {
  if (strikes && sf_run() == 2)
    out[100] ^= 4;
}
__attribute__((noinline)) static void fill(char *p, int c, unsigned long n) { memset(p, c, n); }
SF_LOCAL_HANDLER int handle(int k) {
  fill(out, k, 80);
  int r = give(out, sizeof out);
  fill(out, k + 1, 80);
  strike();
  return r;
}
int main(int argc, char **argv) {
  strikes = argc > 1;
  handle(argc);
  return out[100];
}
