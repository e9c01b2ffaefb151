#include <steadfast/sei.h>
#include <string.h>
#include <unistd.h>
extern char **environ;
static unsigned long last;
SF_LOCAL_HANDLER void handle(void) { last = sf_run() == 1; }
int main(void) {
  for (char **e = environ; *e; e++)
    memset(*e, 'x', strlen(*e));
  if (chdir("/"))
    return 1;
  handle();
  return (int)last;
}
