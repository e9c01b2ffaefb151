#include <string.h>
extern int racy;
static int total;
int send_out(const char *bytes, int n);
int handle(char *text) {
  total += (int)strlen(text) + racy;
  text[1] = '_';
  return send_out(text, (int)strlen(text)) + total;
}
