/* A component that fails in each way that can be detected, so that each alarm can be made to ring.
 *
 * State: things with a number and a sum, parts that point to their thing, and a count of fragile objects.
 */
#include "component.h"

#define FAILURES "steadfast:bad/failures@0.1.0"

struct thing {
	uint32_t n;
	uint64_t sum;
};

static uint32_t fragile_count;

IMPORT("[export]" FAILURES, "[resource-new]thing") int32_t thing_new(struct thing *rep);
IMPORT("[export]" FAILURES, "[resource-new]part") int32_t part_new(struct thing **rep);
IMPORT("[export]" FAILURES, "[resource-new]fragile") int32_t fragile_new(uint32_t *rep);

static void *get(size_t size)
{
	void *at = calloc(1, size);
	if (!at)
		__builtin_trap();
	return at;
}

EXPORT(FAILURES "#[constructor]thing") int32_t thing_constructor(uint32_t n)
{
	struct thing *thing = get(sizeof *thing);
	thing->n = n;
	return thing_new(thing);
}

EXPORT(FAILURES "#[dtor]thing") void thing_destructor(struct thing *thing)
{
	free(thing);
}

EXPORT(FAILURES "#[method]thing.get") uint32_t thing_get(struct thing *thing)
{
	return thing->n;
}

EXPORT(FAILURES "#[method]thing.add") uint64_t thing_add(struct thing *thing, uint32_t n)
{
	return thing->sum += n;
}

EXPORT(FAILURES "#[method]thing.sum") uint64_t thing_sum(struct thing *thing)
{
	return thing->sum;
}

EXPORT(FAILURES "#[method]thing.put-sum") void thing_put_sum(struct thing *thing, uint64_t sum)
{
	thing->sum = sum;
}

EXPORT(FAILURES "#[constructor]part") int32_t part_constructor(struct thing *of)
{
	struct thing **part = get(sizeof *part);
	*part = of;
	return part_new(part);
}

EXPORT(FAILURES "#[dtor]part") void part_destructor(struct thing **part)
{
	free(part);
}

EXPORT(FAILURES "#[method]part.double") uint32_t part_double(struct thing **part)
{
	return (*part)->n * 2;
}

/* result<fragile>: discriminant, then the handle. */
EXPORT(FAILURES "#[static]fragile.make") uint32_t *fragile_make(uint32_t order)
{
	static uint32_t result[2];
	result[0] = order != fragile_count + 1;
	if (!result[0]) {
		uint32_t *fragile = get(sizeof *fragile);
		*fragile = order;
		fragile_count++;
		result[1] = (uint32_t)fragile_new(fragile);
	}
	return result;
}

EXPORT(FAILURES "#[dtor]fragile") void fragile_destructor(uint32_t *fragile)
{
	free(fragile);
}

EXPORT(FAILURES "#[method]fragile.order") uint32_t fragile_order(uint32_t *fragile)
{
	return *fragile;
}

EXPORT(FAILURES "#trap") void trap(void)
{
	__builtin_trap();
}

EXPORT(FAILURES "#beyond") uint32_t beyond(void)
{
	return *(volatile uint32_t *)0x7ffffff0;
}

EXPORT(FAILURES "#divide") uint32_t divide(uint32_t by)
{
	return 100 / by;
}

EXPORT(FAILURES "#spin") void spin(void)
{
	for (volatile uint32_t i = 0;; i++)
		;
}

EXPORT(FAILURES "#echo") uint32_t echo(uint32_t n)
{
	return n;
}

/* string: pointer and length. */
EXPORT(FAILURES "#garbage") uint32_t *garbage(void)
{
	static const char bytes[2] = "\xff\xfe";
	static uint32_t result[2];
	result[0] = (uint32_t)(uintptr_t)bytes;
	result[1] = 2;
	return result;
}
