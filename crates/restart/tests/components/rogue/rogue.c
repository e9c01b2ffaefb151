/* A component that breaks the rules, so that each of them is seen to be kept by somebody else.
 *
 * State: things with a number; how arguments are sabotaged.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define EXPORT(name) __attribute__((export_name(name)))
#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define ACTS "test:rogue/acts@0.1.0"

struct thing {
	uint32_t n;
};

enum { NOWHERE = 1, NONE_AT_ALL, REFUSED, CROOKED };
enum { PAGE = 65536 };

static uint32_t sabotaged;
static int32_t last;
static uint32_t result[2];

IMPORT("[export]" ACTS, "[resource-new]thing") int32_t thing_new(struct thing *rep);
IMPORT("[export]" ACTS, "[resource-new]brittle") int32_t brittle_new(uint32_t spins);
IMPORT("steadfast:host/console@0.1.0", "print") void print(uint32_t at, uint32_t length);

EXPORT("cabi_realloc") uint32_t cabi_realloc(uint32_t old, uint32_t old_size, uint32_t align, uint32_t size)
{
	(void)old, (void)old_size, (void)align;
	switch (sabotaged) {
	case NOWHERE:
		return 0xfffffff0;
	case NONE_AT_ALL:
		return 0;
	case REFUSED:
		__builtin_trap();
	case CROOKED:
		return (uint32_t)(uintptr_t)malloc(size + 16) + 1;
	default:
		return (uint32_t)(uintptr_t)malloc(size ? size : 1);
	}
}

static int32_t make(uint32_t n)
{
	struct thing *thing = malloc(sizeof *thing);
	if (!thing)
		__builtin_trap();
	thing->n = n;
	return last = thing_new(thing);
}

EXPORT(ACTS "#[constructor]thing") int32_t thing_constructor(uint32_t n)
{
	return make(n);
}

EXPORT(ACTS "#[dtor]thing") void thing_destructor(struct thing *thing)
{
	free(thing);
}

EXPORT(ACTS "#[method]thing.n") uint32_t thing_n(struct thing *thing)
{
	return thing->n;
}

EXPORT(ACTS "#[constructor]brittle") int32_t brittle_constructor(uint32_t spins)
{
	return brittle_new(spins);
}

EXPORT(ACTS "#[dtor]brittle") void brittle_destructor(uint32_t spins)
{
	volatile uint32_t goes_on = spins;
	while (goes_on)
		;
	__builtin_trap();
}

EXPORT(ACTS "#again") int32_t again(void)
{
	return last;
}

EXPORT(ACTS "#forged") int32_t forged(int32_t handle)
{
	return handle;
}

EXPORT(ACTS "#spare") int32_t spare(void)
{
	make(1);
	return make(2);
}

EXPORT(ACTS "#maybe") uint32_t *maybe(uint32_t n)
{
	result[0] = n;
	return result;
}

EXPORT(ACTS "#which") uint32_t which(uint32_t n)
{
	return n;
}

EXPORT(ACTS "#letter") uint32_t letter(uint32_t n)
{
	return n;
}

static uint32_t *list(uint32_t at, uint32_t length)
{
	result[0] = at;
	result[1] = length;
	return result;
}

EXPORT(ACTS "#words") uint32_t *words(uint32_t at, uint32_t length)
{
	return list(at, length);
}

EXPORT(ACTS "#texts") uint32_t *texts(uint32_t at, uint32_t length)
{
	return list(at, length);
}

EXPORT(ACTS "#text") uint32_t *text(uint32_t at, uint32_t length)
{
	return list(at, length);
}

EXPORT(ACTS "#say") void say(uint32_t at, uint32_t length)
{
	static const char wrong[] = "\xff\xfe";
	print(at ? at : (uint32_t)(uintptr_t)wrong, length);
}

EXPORT(ACTS "#sabotage") void sabotage(uint32_t how)
{
	sabotaged = how;
}

EXPORT(ACTS "#length") uint32_t length(uint32_t at, uint32_t length)
{
	(void)at;
	return length;
}

EXPORT(ACTS "#unreleased") uint32_t *unreleased(void)
{
	return list(0, 0);
}

EXPORT("cabi_post_" ACTS "#unreleased") void unreleased_done(uint32_t *words)
{
	(void)words;
	__builtin_trap();
}

EXPORT(ACTS "#grow") uint32_t grow(uint32_t pages)
{
	size_t before = __builtin_wasm_memory_grow(0, pages);
	if (!pages)
		return (uint32_t)before;
	for (size_t page = before; before != (size_t)-1 && page < before + pages; page++)
		*(volatile uint32_t *)(uintptr_t)(page * PAGE) = 1;
	__builtin_trap();
}

static volatile uint32_t depth;

/* Not a loop, and nothing of it on the component's own stack. */
EXPORT(ACTS "#deep") uint32_t deep(uint32_t n)
{
	depth = n;
	return n ? deep(n - 1) + depth : 0;
}
