#include <steadfast/sei.h>
SF_DUP int x;
int main(void) { return x; }
