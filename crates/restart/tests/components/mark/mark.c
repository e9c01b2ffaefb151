/* Moments, by the clock that the host answers. */
#include "component.h"

#define MARKS "test:mark/marks@0.1.0"
#define CLOCK "wasi:clocks/wall-clock@0.2.0"

struct datetime {
	uint64_t seconds;
	uint32_t nanoseconds;
};

IMPORT(CLOCK, "now") void clock_now(struct datetime *result);
IMPORT("[export]" MARKS, "[resource-new]mark") int32_t mark_new(struct datetime *rep);

static int32_t keep(struct datetime at)
{
	struct datetime *mark = malloc(sizeof *mark);
	if (!mark)
		__builtin_trap();
	*mark = at;
	return mark_new(mark);
}

EXPORT(MARKS "#[constructor]mark") int32_t mark_constructor(void)
{
	struct datetime at;
	clock_now(&at);
	return keep(at);
}

EXPORT(MARKS "#[static]mark.again") int32_t mark_again(uint64_t seconds, uint32_t nanoseconds)
{
	return keep((struct datetime){ seconds, nanoseconds });
}

EXPORT(MARKS "#[dtor]mark") void mark_destructor(struct datetime *mark)
{
	free(mark);
}

EXPORT(MARKS "#[method]mark.at") struct datetime *mark_at(struct datetime *mark)
{
	return mark;
}

EXPORT(MARKS "#now") struct datetime *now(void)
{
	static struct datetime at;
	clock_now(&at);
	return &at;
}
