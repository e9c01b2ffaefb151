#include <steadfast/sei.h>
static long total;
SF_LOCAL_HANDLER long handle(long k) { return total += k; }
