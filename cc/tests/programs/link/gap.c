#include <steadfast/sei.h>
#include <unistd.h>
SF_LOCAL_HANDLER int handle(void) { return fork(); }
int main(void) { return handle(); }
