/* What `steadfast host bench` measures on: memory that is written to, and failures of each kind.
 *
 * State: how often `dirty` was called, in the first word of its area. Not here: objects; those of the other components are measured as well.
 */
#include "component.h"

#define PROBE "steadfast:probe/probe@0.1.0"

static uint32_t area[64 * 1024 / sizeof(uint32_t)];

EXPORT(PROBE "#nothing") void nothing(void)
{
}

EXPORT(PROBE "#dirty") uint32_t dirty(uint32_t kib)
{
	uint32_t words = kib * (1024 / sizeof *area);
	for (uint32_t i = 1; i < words && i < sizeof area / sizeof *area; i++)
		area[i] += i;
	return ++area[0];
}

EXPORT(PROBE "#trap") void trap(void)
{
	__builtin_trap();
}

EXPORT(PROBE "#assert-host") void assert_host(void)
{
	steadfast_assert(area[0] == UINT32_MAX);
}

EXPORT(PROBE "#spin") void spin(void)
{
	for (volatile uint32_t n = 0;; n++)
		;
}
