#include <unistd.h>
int other(int k) { return chdir("/") + k; }
