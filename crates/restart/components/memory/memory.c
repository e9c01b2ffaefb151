/* The policy of a memory manager: pages that are granted, aliased, and revoked with everything that was made from them.
 *
 * State: a tree of mappings for each grant. Recovery gives a mapping back by its place and its parent (memory.recover.toml), so nothing here
 * knows of it. Mappings are told sorted: the order in which they come back is not the order in which they were made.
 *
 * Invariants
 *  1. All mappings of a tree have the frame of its root.
 *  2. A tree is walked without recursion, however deep it is: the stack is small.
 * Not here: frames, page tables, and whether an address is free; all of them are the host's.
 */
#include "component.h"

#define PAGES "steadfast:memory/pages@0.1.0"

struct page {
	struct page *parent, *first, *next, *previous;
	uint64_t address;
	uint32_t space, frame;
};

/* record mapping: a word, then a double word at its alignment. */
struct mapping {
	uint32_t space;
	uint64_t address;
};

IMPORT("[export]" PAGES, "[resource-new]page") int32_t page_new(struct page *rep);
IMPORT("[export]" PAGES, "[resource-rep]page") struct page *page_rep(int32_t handle);
IMPORT("[export]" PAGES, "[resource-drop]page") void page_drop(int32_t handle);

static struct page *make(uint32_t frame, uint32_t space, uint64_t address)
{
	struct page *page = calloc(1, sizeof *page);
	if (!page)
		__builtin_trap();
	page->frame = frame;
	page->space = space;
	page->address = address;
	return page;
}

EXPORT(PAGES "#[constructor]page") int32_t page_constructor(uint32_t frame, uint32_t space, uint64_t address)
{
	return page_new(make(frame, space, address));
}

EXPORT(PAGES "#[method]page.alias") int32_t page_alias(struct page *of, uint32_t space, uint64_t address)
{
	struct page *page = make(of->frame, space, address);
	page->parent = of;
	page->next = of->first;
	if (of->first)
		of->first->previous = page;
	of->first = page;
	return page_new(page);
}

/* The host ends what was made from a page together with it. */
EXPORT(PAGES "#[dtor]page") void page_destructor(struct page *page)
{
	for (struct page *child = page->first; child; child = child->next)
		child->parent = NULL;
	if (page->next)
		page->next->previous = page->previous;
	if (page->previous)
		page->previous->next = page->next;
	else if (page->parent)
		page->parent->first = page->next;
	free(page);
}

EXPORT(PAGES "#[method]page.frame") uint32_t page_frame(struct page *page)
{
	return page->frame;
}

/* The next page of a tree, parents first. */
static struct page *after(const struct page *root, struct page *page)
{
	if (page->first)
		return page->first;
	while (page != root && !page->next)
		page = page->parent;
	return page == root ? NULL : page->next;
}

static int by_place(const void *left, const void *right)
{
	const struct mapping *a = left, *b = right;
	if (a->space != b->space)
		return a->space < b->space ? -1 : 1;
	return a->address < b->address ? -1 : a->address > b->address;
}

/* list<mapping>: pointer and length. */
static uint32_t *mappings(struct page *root)
{
	static uint32_t result[2];
	uint32_t count = 0, at = 0;
	for (struct page *page = root; page; page = after(root, page))
		count++;
	struct mapping *list = malloc(count * sizeof *list);
	if (!list)
		__builtin_trap();
	for (struct page *page = root; page; page = after(root, page))
		list[at++] = (struct mapping){ page->space, page->address };
	qsort(list, count, sizeof *list, by_place);
	result[0] = (uint32_t)(uintptr_t)list;
	result[1] = count;
	return result;
}

EXPORT(PAGES "#[method]page.mappings") uint32_t *page_mappings(struct page *page)
{
	return mappings(page);
}

EXPORT("cabi_post_" PAGES "#[method]page.mappings") void page_mappings_done(uint32_t *result)
{
	free((void *)(uintptr_t)result[0]);
}

EXPORT(PAGES "#revoke") uint32_t *revoke(int32_t handle)
{
	uint32_t *result = mappings(page_rep(handle));
	page_drop(handle);
	return result;
}

EXPORT("cabi_post_" PAGES "#revoke") void revoke_done(uint32_t *result)
{
	free((void *)(uintptr_t)result[0]);
}
