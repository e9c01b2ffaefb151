#include <steadfast/sei.h>
int other(int);
SF_DUP int x;
SF_LOCAL_HANDLER int handle(int k) { return x += other(k); }
int main(void) { return handle(0); }
