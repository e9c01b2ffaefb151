/* `late-errors stop` of a policy: no error is handed on (late.c). Asked for by its name at the link. */
#include "late.h"
#include "runtime.h"

SF_API const int __sf_late_stop = 1;
