#include <steadfast/sei.h>
int elsewhere(int);
static int middle(int k) { return elsewhere(k) + 1; }
SF_LOCAL_HANDLER int handle(int k) { return k > 3 ? middle(k) : 0; }
int main(void) { return handle(1); }
__asm__(".globl elsewhere\nelsewhere: ret\n");
