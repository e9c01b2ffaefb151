#include <string.h>
int kept;
static void keep(int n) { kept += n; }
int twice(int n) {
  keep(n);
  return 2 * n;
}
int length(const char *s) { return (int)strlen(s); }
