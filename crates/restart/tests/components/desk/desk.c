/* A component whose own frames are on the stack while another one computes. State: desks, each with a mill. */
#include "component.h"

#define DESKS "test:desk/desks@0.1.0"
#define MILLS "test:mill/mills@0.1.0"

IMPORT(MILLS, "[constructor]mill") int32_t mill_new(uint32_t n);
IMPORT(MILLS, "[method]mill.grind") uint32_t mill_grind(int32_t mill, uint32_t rounds);
IMPORT(MILLS, "[resource-drop]mill") void mill_drop(int32_t mill);

struct desk {
	int32_t mill;
	uint32_t n;
};

IMPORT("[export]" DESKS, "[resource-new]desk") int32_t desk_new(struct desk *rep);

EXPORT(DESKS "#[constructor]desk") int32_t desk_constructor(uint32_t n)
{
	struct desk *desk = malloc(sizeof *desk);
	if (!desk)
		__builtin_trap();
	desk->mill = mill_new(n);
	desk->n = n;
	return desk_new(desk);
}

EXPORT(DESKS "#[dtor]desk") void desk_destructor(struct desk *desk)
{
	mill_drop(desk->mill);
	free(desk);
}

/* Frames with words that must be the same behind the call. */
__attribute__((noinline)) static uint32_t down(const struct desk *desk, uint32_t rounds, uint32_t left)
{
	volatile uint32_t word = desk->n ^ left;
	uint32_t below = left ? down(desk, rounds, left - 1) : mill_grind(desk->mill, rounds);
	if (word != (desk->n ^ left))
		__builtin_trap();
	return below;
}

EXPORT(DESKS "#[method]desk.ask") uint32_t desk_ask(struct desk *desk, uint32_t rounds)
{
	return down(desk, rounds, 16) + desk->n;
}
