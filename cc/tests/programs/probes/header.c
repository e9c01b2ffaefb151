#include <steadfast/sei.h>
int main(void) { return 0; }
