#include <steadfast/sei.h>
extern int reader(const char *) SF_PURE;
SF_LOCAL_HANDLER int handle(void) { return reader("x"); }
int main(void) { return handle(); }
__asm__(".globl reader\nreader: ret\n");
