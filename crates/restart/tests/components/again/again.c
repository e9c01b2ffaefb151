/* A component that asks in each of its functions whether it is to fail there: a fault at a chosen step of a replay.
 *
 * State: things with a number, a mode, a sum and bytes; how often it was begun.
 */
#include "component.h"

#define THINGS "test:again/things@0.1.0"

struct thing {
	uint32_t n;
	uint32_t mode;
	uint64_t sum;
	uint8_t *data;
	uint32_t length;
};

struct bytes {
	uint32_t failed;
	const uint8_t *data;
	uint32_t length;
};

IMPORT("[export]" THINGS, "[resource-new]thing") int32_t thing_new(struct thing *rep);
IMPORT("test:fault/fault@0.1.0", "here") int32_t here(void);

static uint32_t begun;

EXPORT("begin") void begin(void)
{
	begun++;
}

EXPORT("begin-trap") void begin_trap(void)
{
	__builtin_trap();
}

EXPORT("begin-spin") void begin_spin(void)
{
	for (volatile uint32_t n = 0;; n++)
		;
}

EXPORT("begin-ask") void begin_ask(void)
{
	here();
}

static void may_fail(void)
{
	if (here())
		__builtin_trap();
}

EXPORT(THINGS "#[constructor]thing") int32_t thing_constructor(uint32_t n)
{
	may_fail();
	struct thing *thing = calloc(1, sizeof *thing);
	if (!thing)
		__builtin_trap();
	thing->n = n;
	return thing_new(thing);
}

EXPORT(THINGS "#[dtor]thing") void thing_destructor(struct thing *thing)
{
	may_fail();
	free(thing->data);
	free(thing);
}

EXPORT(THINGS "#[method]thing.open") int32_t thing_open(struct thing *thing, uint32_t mode)
{
	may_fail();
	thing->mode = mode;
	return 1;
}

EXPORT(THINGS "#[method]thing.add") uint64_t thing_add(struct thing *thing, uint32_t n)
{
	may_fail();
	return thing->sum += n;
}

EXPORT(THINGS "#[method]thing.put-sum") void thing_put_sum(struct thing *thing, uint64_t sum)
{
	may_fail();
	thing->sum = sum;
}

EXPORT(THINGS "#[method]thing.write") uint32_t thing_write(struct thing *thing, uint32_t offset, uint8_t *data, uint32_t length)
{
	may_fail();
	uint32_t end = offset + length;
	if (end > thing->length) {
		thing->data = realloc(thing->data, end);
		if (!thing->data)
			__builtin_trap();
		memset(thing->data + thing->length, 0, end - thing->length);
		thing->length = end;
	}
	memcpy(thing->data + offset, data, length);
	free(data);
	return length;
}

/* result<list<u8>>: a discriminant, then pointer and length. */
EXPORT(THINGS "#[method]thing.read") struct bytes *thing_read(struct thing *thing, uint32_t offset, uint32_t length)
{
	static struct bytes result;
	may_fail();
	uint32_t left = offset < thing->length ? thing->length - offset : 0;
	result = (struct bytes){.data = thing->data + offset, .length = length < left ? length : left};
	return &result;
}

/* In decimal, before `end`. The C library's printf would import a file system. */
static char *number(char *end, uint64_t n)
{
	do
		*--end = (char)('0' + n % 10);
	while (n /= 10);
	return end;
}

EXPORT(THINGS "#[method]thing.look") uint32_t *thing_look(struct thing *thing)
{
	static char text[80];
	static uint32_t result[2];
	may_fail();
	char *end = text + sizeof text;
	char *at = number(end, begun);
	*--at = ' ';
	at = number(at, thing->sum);
	*--at = ' ';
	at = number(at, thing->mode);
	*--at = ' ';
	at = number(at, thing->n);
	result[0] = (uint32_t)(uintptr_t)at;
	result[1] = (uint32_t)(end - at);
	return result;
}
