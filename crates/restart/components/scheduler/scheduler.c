/* The policy of a scheduler: fixed priorities, first come first served among equals.
 *
 * State: an array of threads. Recovery gives each thread's number, priority and moment back (scheduler.recover.toml), so nothing here knows of
 * it, and the choice is a function of what comes back: the order of the array is not.
 * Not here: threads, clocks, waiting. A thread that is not picked waits in the host.
 */
#include "component.h"

#define THREADS "steadfast:scheduler/threads@0.1.0"

struct thread {
	uint64_t id, since;
	uint32_t priority;
	uint32_t blocked;
	uint32_t place;
};

static struct thread **threads;
static uint32_t count, room;

IMPORT("[export]" THREADS, "[resource-new]thread") int32_t thread_new(struct thread *rep);

EXPORT(THREADS "#[constructor]thread") int32_t thread_constructor(uint64_t id, uint32_t priority, uint64_t now)
{
	if (count == room) {
		uint32_t more = room ? room * 2 : 16;
		struct thread **grown = realloc(threads, more * sizeof *grown);
		if (!grown)
			__builtin_trap();
		threads = grown;
		room = more;
	}
	struct thread *thread = malloc(sizeof *thread);
	if (!thread)
		__builtin_trap();
	*thread = (struct thread){ .id = id, .since = now, .priority = priority, .place = count };
	threads[count++] = thread;
	return thread_new(thread);
}

EXPORT(THREADS "#[dtor]thread") void thread_destructor(struct thread *thread)
{
	struct thread *last = threads[--count];
	threads[thread->place] = last;
	last->place = thread->place;
	free(thread);
}

EXPORT(THREADS "#[method]thread.ready") void thread_ready(struct thread *thread, uint64_t now)
{
	thread->since = now;
	thread->blocked = 0;
}

EXPORT(THREADS "#[method]thread.block") int32_t thread_block(struct thread *thread)
{
	int32_t was = !thread->blocked;
	thread->blocked = 1;
	return was;
}

static int before(const struct thread *a, const struct thread *b)
{
	if (a->priority != b->priority)
		return a->priority < b->priority;
	return a->since != b->since ? a->since < b->since : a->id < b->id;
}

/* option<u64>: a discriminant, then the payload at its alignment. */
EXPORT(THREADS "#pick") uint64_t *pick(void)
{
	static uint64_t result[2];
	const struct thread *best = NULL;
	for (uint32_t i = 0; i < count; i++)
		if (!threads[i]->blocked && (!best || before(threads[i], best)))
			best = threads[i];
	result[0] = best != NULL;
	result[1] = best ? best->id : 0;
	return result;
}
