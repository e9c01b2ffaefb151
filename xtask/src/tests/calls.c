#include "tables.h"
#include <asm/errno.h>
#define CALL(nr, name, class, handler, err, a0, a1, a2, a3, a4, a5, note) \
	[nr] = { #name, SF_##class, SF_H_##handler, err, { a0, a1, a2, a3, a4, a5 }, note },
#define CALL_GAP(first, last, note) \
	[first ... last] = { 0, SF_DENY, SF_H_generic, ENOSYS, { N_, N_, N_, N_, N_, N_ }, note },
const struct sf_call calls[SF_CALLS_MAX + 1] = {
#include "calls.def"
};
