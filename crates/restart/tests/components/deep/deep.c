/* A component that uses most of its stack before it calls another one of its kind. No state. */
#include "component.h"

#define CHAIN "test:deep/chain@0.1.0"

IMPORT(CHAIN, "go") uint32_t next(uint32_t frames);

static volatile uint32_t seen;

__attribute__((noinline)) static uint32_t down(uint32_t left, uint32_t frames)
{
	if (left == 0)
		return next(frames);
	uint32_t below = down(left - 1, frames);
	seen = below;
	/* Something to do behind the call, so that it is no jump. */
	return seen;
}

EXPORT(CHAIN "#go") uint32_t go(uint32_t frames)
{
	return down(frames, frames) + 1;
}
