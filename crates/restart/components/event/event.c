/* Events that are counted: whoever waits compares with what it has seen.
 *
 * State: one count an event. Recovery gives it back (event.recover.toml).
 * Not here: waiting. A thread waits in the host (Edge::wait), so none is inside a component that fails.
 */
#include "component.h"

#define EVENTS "steadfast:event/events@0.1.0"

struct event {
	uint64_t occurred;
};

IMPORT("[export]" EVENTS, "[resource-new]event") int32_t event_new(struct event *rep);

EXPORT(EVENTS "#[constructor]event") int32_t event_constructor(void)
{
	struct event *event = calloc(1, sizeof *event);
	if (!event)
		__builtin_trap();
	return event_new(event);
}

EXPORT(EVENTS "#[dtor]event") void event_destructor(struct event *event)
{
	free(event);
}

EXPORT(EVENTS "#[method]event.trigger") uint64_t event_trigger(struct event *event, uint32_t count)
{
	return event->occurred += count;
}

EXPORT(EVENTS "#[method]event.occurred") uint64_t event_occurred(struct event *event)
{
	return event->occurred;
}

EXPORT(EVENTS "#[method]event.put-occurred") void event_put_occurred(struct event *event, uint64_t total)
{
	event->occurred = total;
}
