/* A component whose calls take long enough to be struck. State: mills, each with a number. */
#include "component.h"

#define MILLS "test:mill/mills@0.1.0"

struct mill {
	uint32_t n;
};

IMPORT("[export]" MILLS, "[resource-new]mill") int32_t mill_new(struct mill *rep);

EXPORT(MILLS "#[constructor]mill") int32_t mill_constructor(uint32_t n)
{
	struct mill *mill = malloc(sizeof *mill);
	if (!mill)
		__builtin_trap();
	mill->n = n;
	return mill_new(mill);
}

EXPORT(MILLS "#[dtor]mill") void mill_destructor(struct mill *mill)
{
	free(mill);
}

/* A call of its own, so that the stack is used in each round. */
__attribute__((noinline)) static uint32_t turn(volatile uint32_t *stone, uint32_t round)
{
	*stone = *stone * 5 + round;
	return *stone;
}

EXPORT(MILLS "#[method]mill.grind") uint32_t mill_grind(struct mill *mill, uint32_t rounds)
{
	volatile uint32_t stone = 0;
	uint32_t ground = 0;
	for (uint32_t round = 0; round < rounds; round++)
		ground ^= turn(&stone, round);
	return ground == 0xffffffff ? 0 : mill->n;
}
