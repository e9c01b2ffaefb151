/* Items on shelves: an item moves from one to another, and may have a shelf inside.
 *
 * State: which item stands where. An item 13 is put even on a shelf inside itself, which nothing could bring back.
 */
#include "component.h"

#define SHELVES "test:shelf/shelves@0.1.0"

struct item;
struct shelf {
	struct item *first;
	/* The item that it is inside of. */
	struct item *in;
};
struct item {
	struct item *next;
	struct shelf *on;
	uint32_t n, price;
};

enum { ROOM = 3, CARELESS = 13 };

IMPORT("[export]" SHELVES, "[resource-new]shelf") int32_t shelf_new(struct shelf *rep);
IMPORT("[export]" SHELVES, "[resource-new]item") int32_t item_new(struct item *rep);

static void put(struct item *item, struct shelf *on)
{
	item->on = on;
	item->next = on->first;
	on->first = item;
}

static void take(struct item *item)
{
	if (!item->on)
		return;
	struct item **at = &item->on->first;
	while (*at != item)
		at = &(*at)->next;
	*at = item->next;
	item->on = NULL;
}

static int32_t make(struct item *in)
{
	struct shelf *shelf = calloc(1, sizeof *shelf);
	if (!shelf)
		__builtin_trap();
	shelf->in = in;
	return shelf_new(shelf);
}

EXPORT(SHELVES "#[constructor]shelf") int32_t shelf_constructor(void)
{
	return make(NULL);
}

EXPORT(SHELVES "#[dtor]shelf") void shelf_destructor(struct shelf *shelf)
{
	while (shelf->first)
		take(shelf->first);
	free(shelf);
}

EXPORT(SHELVES "#[method]shelf.sum") uint32_t shelf_sum(struct shelf *shelf)
{
	uint32_t sum = 0;
	for (struct item *item = shelf->first; item; item = item->next)
		sum += item->n;
	return sum;
}

EXPORT(SHELVES "#[constructor]item") int32_t item_constructor(struct shelf *on, uint32_t n)
{
	struct item *item = calloc(1, sizeof *item);
	if (!item)
		__builtin_trap();
	item->n = n;
	put(item, on);
	return item_new(item);
}

EXPORT(SHELVES "#[dtor]item") void item_destructor(struct item *item)
{
	take(item);
	free(item);
}

EXPORT(SHELVES "#[method]item.move-to") int32_t item_move_to(struct item *item, struct shelf *on)
{
	uint32_t count = 0;
	const struct item *in = on->in;
	while (in && in != item)
		in = in->on ? in->on->in : NULL;
	if (in && item->n != CARELESS)
		return 0;
	for (struct item *other = on->first; other; other = other->next)
		count += other != item;
	if (count >= ROOM)
		return 0;
	take(item);
	put(item, on);
	return 1;
}

EXPORT(SHELVES "#[method]item.n") uint32_t item_n(struct item *item)
{
	return item->n;
}

EXPORT(SHELVES "#[method]item.set-price") void item_set_price(struct item *item, uint32_t price)
{
	item->price = price;
}

/* What is lent in a list comes as it is, without a handle to give back. */
EXPORT(SHELVES "#total") uint64_t total(struct item **items, uint32_t count)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < count; i++)
		sum += (uint64_t)items[i]->price * (i + 1);
	if (count)
		free(items);
	return sum;
}

EXPORT(SHELVES "#[method]item.inside") int32_t item_inside(struct item *item)
{
	return make(item);
}
