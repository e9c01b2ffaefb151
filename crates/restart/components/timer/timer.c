/* Periodic timers.
 *
 * State: period and start, and how often the timer has expired, from which the next expiry follows. Recovery gives the count back
 * (timer.recover.toml). Not here: a clock, and waiting; both are the host's.
 */
#include "component.h"

#define TIMERS "steadfast:timer/timers@0.1.0"

struct timer {
	uint64_t period;
	uint64_t start;
	uint64_t expired;
};

IMPORT("[export]" TIMERS, "[resource-new]timer") int32_t timer_new(struct timer *rep);

EXPORT(TIMERS "#[constructor]timer") int32_t timer_constructor(uint64_t period, uint64_t start)
{
	struct timer *timer = calloc(1, sizeof *timer);
	if (!timer)
		__builtin_trap();
	timer->period = period ? period : 1;
	timer->start = start;
	return timer_new(timer);
}

EXPORT(TIMERS "#[dtor]timer") void timer_destructor(struct timer *timer)
{
	free(timer);
}

EXPORT(TIMERS "#[method]timer.next") uint64_t timer_next(struct timer *timer)
{
	return timer->start + (timer->expired + 1) * timer->period;
}

EXPORT(TIMERS "#[method]timer.advance") uint64_t timer_advance(struct timer *timer, uint64_t now)
{
	if (now > timer->start) {
		uint64_t expired = (now - timer->start) / timer->period;
		if (expired > timer->expired)
			timer->expired = expired;
	}
	return timer->expired;
}

EXPORT(TIMERS "#[method]timer.put-expired") void timer_put_expired(struct timer *timer, uint64_t total)
{
	timer->expired = total;
}
