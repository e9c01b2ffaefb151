#include <steadfast/sei.h>
#include <setjmp.h>
static jmp_buf j;
SF_LOCAL_HANDLER int handle(void) { return setjmp(j); }
int main(void) { return handle(); }
