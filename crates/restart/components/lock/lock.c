/* Locks with an owner: the smallest component whose objects are worth keeping.
 *
 * State: one word a lock, its owner or nobody. Recovery replays "take" for a lock that is held (lock.recover.toml).
 * Not here: waiting. A caller that must wait does so in the host, outside the component.
 */
#include "component.h"

#define LOCKS "steadfast:lock/locks@0.1.0"

struct lock {
	uint32_t owner;
	uint32_t held;
};

IMPORT("[export]" LOCKS, "[resource-new]lock") int32_t lock_new(struct lock *rep);

EXPORT(LOCKS "#[constructor]lock") int32_t lock_constructor(void)
{
	struct lock *lock = calloc(1, sizeof *lock);
	if (!lock)
		__builtin_trap();
	return lock_new(lock);
}

EXPORT(LOCKS "#[dtor]lock") void lock_destructor(struct lock *lock)
{
	free(lock);
}

EXPORT(LOCKS "#[method]lock.take") int32_t lock_take(struct lock *lock, uint32_t owner)
{
	if (lock->held)
		return lock->owner == owner;
	lock->owner = owner;
	lock->held = 1;
	return 1;
}

/* result<_, refusal>: a discriminant and the enum's case, two bytes in memory. */
EXPORT(LOCKS "#[method]lock.release") uint8_t *lock_release(struct lock *lock, uint32_t owner)
{
	static uint8_t result[2];
	result[0] = !lock->held || lock->owner != owner;
	result[1] = lock->held != 0;
	if (!result[0])
		lock->held = 0;
	return result;
}

/* option<u32>: a discriminant, then the payload at its alignment. */
EXPORT(LOCKS "#[method]lock.holder") uint32_t *lock_holder(struct lock *lock)
{
	static uint32_t result[2];
	result[0] = lock->held != 0;
	result[1] = lock->owner;
	return result;
}
