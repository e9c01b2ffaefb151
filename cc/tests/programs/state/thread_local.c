#include <steadfast/sei.h>
SF_DUP _Thread_local int x;
int main(void) { return x; }
