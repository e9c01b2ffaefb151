/* Event: the one way through a rendezvous, for every kind of event.
 *
 *   restarted? ──► claim ──► room ──► arrive ──► meet ──► stands? (leader) ──► act (leader) or take (follower) ──► done
 *       ▲                     └───────────┴────────┴───────────┴──► pause, and again from the start
 *       └── the launcher has made this replica another: start what that one was at
 *
 * A kind of event is a struct sf_step; what differs stands there. Nothing below the driver pauses:
 * whoever cannot go on says so by its result, and the driver obeys the launcher.
 *
 * Invariants
 *  1. sf_log_room() is called here alone; sf_pause() here and in sf_stand(), for those at no event.
 *  2. `claim` may run many times for one event: it changes nothing but the event.
 *
 * Everything is inlined, so that a step's functions stand where they are called.
 */
#ifndef SF_EVENT_H
#define SF_EVENT_H

enum sf_claim {
	SF_CLAIMED, /* the event says what this replica is about to do */
	SF_NOTHING, /* there is nothing to agree on */
	SF_ANEW,    /* what the claim is made of has changed: from the start */
};

struct sf_step {
	enum sf_claim (*claim)(struct sf_event *, struct sf_regs *, void *);
	void (*agreed)(struct sf_event *, struct sf_regs *, void *); /* all replicas; may be absent */
	const struct sf_result *(*act)(struct sf_event *, void *);   /* the leader; NULL: pause, then again */
	void (*take)(struct sf_event *, const struct sf_result *, void *); /* a follower; may be absent */
	int (*done)(struct sf_event *, const struct sf_result *, void *); /* all; 1: the event has been closed; may be absent */
	int stays; /* a transplant is the caller's business: it may be in a handler of the kernel's */
	int (*stands)(const struct sf_event *, struct sf_regs *, void *); /* the leader, after it has waited; 0: pause; may be absent */
};

#define SF_UNDONE (-1) /* no event was made, or (stays) this replica has become another */

/* The flags of the event's result, or SF_UNDONE. */
INLINE s32 sf_event(struct sf_event *e, struct sf_regs *r, const struct sf_step *s, void *arg)
{
	for (;;) {
		const struct sf_result *done;
		if (unlikely(me.restarted)) {
			if (s->stays)
				return SF_UNDONE;
			sf_again(r);
		}
		me.waited = 0;
		enum sf_claim what = s->claim(e, r, arg);
		if (unlikely(what != SF_CLAIMED)) {
			if (what == SF_NOTHING)
				return SF_UNDONE;
			continue;
		}
		if (me.slot == 0 && unlikely(!sf_log_room(e->seq)))
			goto pause;
		sf_arrive(e, r);
		if (unlikely((e->lockstep ? sf_rendezvous_all(e) : sf_rendezvous_leader(e)) != SF_AGREED))
			goto pause;
		if (me.slot == 0 && s->stands && me.waited && e->lockstep && unlikely(!s->stands(e, r, arg)))
			goto pause;
		if (unlikely(app.domain) && e->lockstep && unlikely(!sf_is_meant(e)))
			goto pause;
		if (s->agreed)
			s->agreed(e, r, arg);
		done = me.slot == 0 ? s->act(e, arg) : sf_result_wait(e);
		if (unlikely(!done))
			goto pause;
		if (me.slot != 0 && s->take)
			s->take(e, done, arg);
		s32 flags = done->flags;
		if (s->done && s->done(e, done, arg))
			return flags;
		if (me.own_event)
			sf_own_event_done(e, done);
		else
			sf_event_done(e, done);
		return flags;
	pause:
		sf_pause();
	}
}

#endif
