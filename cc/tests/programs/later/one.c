#include <steadfast/sei.h>
int twice(int);
static int n;
SF_LOCAL_HANDLER int handle(int k) { return n += twice(k); }
int main(void) { return handle(2) != 4; }
