/* Branches that outlive what they grew from.
 *
 * Invariant: a branch is here as long as a client has it, or something that grew from it is here.
 */
#include "component.h"

#define BRANCHES "test:branch/branches@0.1.0"

struct branch {
	struct branch *below;
	uint32_t n, uses;
};

static uint32_t count;

IMPORT("[export]" BRANCHES, "[resource-new]branch") int32_t branch_new(struct branch *rep);

static struct branch *make(struct branch *below, uint32_t n)
{
	struct branch *branch = malloc(sizeof *branch);
	if (!branch)
		__builtin_trap();
	*branch = (struct branch){ below, n, 1 };
	if (below)
		below->uses++;
	count++;
	return branch;
}

EXPORT(BRANCHES "#[constructor]branch") int32_t branch_constructor(uint32_t n)
{
	return branch_new(make(NULL, n));
}

EXPORT(BRANCHES "#[method]branch.grow") int32_t branch_grow(struct branch *branch, uint32_t n)
{
	return branch_new(make(branch, n));
}

EXPORT(BRANCHES "#[method]branch.set") void branch_set(struct branch *branch, uint32_t n)
{
	branch->n = n;
}

EXPORT(BRANCHES "#[method]branch.sum") uint32_t branch_sum(struct branch *branch)
{
	uint32_t sum = 0;
	for (; branch; branch = branch->below)
		sum += branch->n;
	return sum;
}

EXPORT(BRANCHES "#[dtor]branch") void branch_destructor(struct branch *branch)
{
	while (branch && --branch->uses == 0) {
		struct branch *below = branch->below;
		free(branch);
		branch = below;
		count--;
	}
}

EXPORT(BRANCHES "#count") uint32_t branch_count(void)
{
	return count;
}
