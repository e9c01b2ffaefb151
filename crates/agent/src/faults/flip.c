/* Flip: the faults that `--flip` asks for, carried out inside the victim.
 *
 *   payload counts down ──► sf_entry_flip ──► sf_flip_hit: count phase ──► the instruction
 *                                                                            │
 *         the program goes on ◄── finish phase, if there is something to undo ◄┘
 *
 * An event's fault needs no payload: the places in the agent where an event passes compare
 * its number with the next one that a flip waits for (faults.h, SF_FLIP_POINT). Nor does one by the clock,
 * which is the launcher's: it says which are due, and a signal brings the replica here (signal.c).
 *
 * Invariants
 *  1. Every replica carries the same hooks; only victims have their counters set, so a run
 *     with a fault differs from one without in the fault alone.
 *  2. A fault happens in the process it was armed in. Copies made by a repair or a snapshot
 *     are disarmed: a particle does not strike twice. A fault without an end (n=5..) is a defect
 *     of the place where a replica stands: who takes that place is armed with it again.
 *  3. A hit is recorded whether or not it changed anything; one whose place cannot be reached
 *     (a wild address) is none.
 *  4. What is undone is the execution that was struck, and no later one.
 *
 * Not covered: flips inside this file and flip.S, which run on one stack of their own.
 */
#include "agent.h"
#include "faults/flip.h"
#include "hit.h"

#define FLIP(i) ((struct sf_flip *)(SF_SHARED + SF_OFF_FLIPS) + (i))
#define HIT(i, slot) ((struct sf_hit *)(SF_SHARED + SF_OFF_FLIP_HITS) + (i) * SF_REPLICAS_MAX + (slot))

#define NOTES ((struct sf_flip_notes *)(SF_SHARED + SF_OFF_FLIP_NOTES))

u8 sf_flip_stack[16384] __attribute__((aligned(64)));
static u8 vectors[16384] __attribute__((aligned(64)));

/* What a flip of this process has been up to. */
static struct state {
	u64 n;     /* the execution that its counter leads to */
	u64 spent; /* an event's flip that has hit */
	/* While something waits to be undone behind an instruction: what the counter would stand at, which
	 * is kept at one so that the next execution is met; and the strike. */
	u64 left;
	struct sf_strike strike;
	struct sf_struck struck;
} own[SF_FLIPS_MAX];

static s64 raw3(u64 nr, u64 a, u64 b, u64 c)
{
	u64 call[7] = { nr, a, b, c, 0, 0, 0 };
	return sf_raw(call);
}

static s64 call2(u64 nr, u64 a, u64 b)
{
	return raw3(nr, a, b, 0);
}

/* ---- memory, under a guard of this file's own: the agent may hold one itself ---- */

static int guarded_copy(void *to, const void *from, u64 n)
{
	struct sf_guard here, *before = me.guard;
	int failed = 1;
	if (sf_guard_enter(&here) == 0) {
		me.guard = &here;
		barrier();
		memcpy(to, from, n);
		barrier();
		failed = 0;
	}
	me.guard = before;
	return failed;
}

static int get(void *to, u64 at, u64 n)
{
	return guarded_copy(to, (void *)at, n);
}

static int put(u64 at, const void *from, u64 n)
{
	if (!guarded_copy((void *)at, from, n))
		return 0;
	u64 page = at & ~4095ull, len = ((at + n + 4095) & ~4095ull) - page;
	if (raw3(NR_mprotect, page, len, 3))
		return 1;
	int failed = guarded_copy((void *)at, from, n);
	raw3(NR_mprotect, page, len, 5);
	return failed;
}

static int start(const struct sf_strike *f, u64 *at)
{
	if (f->place.from != SF_F_ENTRY)
		return 1; /* its module is not mapped */
	*at = f->when == SF_T_CLAIM ? (u64)CLAIM(me.slot, me.next) : (u64)RESULT(me.next - me.base);
	return 0;
}

/* ---- vector state ---- */

/* In a signal's handler the program's is in the frame, complete, and goes back from there. */
static u8 *framed;

static u8 *vectors_save(void)
{
	if (framed)
		return framed;
	sf_fp_save(vectors);
	return vectors;
}

static void vectors_load(void)
{
	if (!framed)
		sf_fp_load(vectors);
}

static u32 vectors_part(u32 number)
{
	u32 a = 0xd, b, c = number, d;
	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return b;
}

/* ---- one hit ---- */

static int astray(const struct sf_strike *f, struct sf_struck *s, struct sf_hit *h, struct sf_regs *r)
{
	(void)s;
	int site = f->when == SF_T_SITE;
	u64 payload_end = r->rip;
	switch (f->what) {
	case SF_X_IP:
		h->before = site ? f->addr : r->rip;
		r->rip = h->after = changed(f, h->before, 0);
		/* To an address that has no page in any process the jump itself would fault, and it
		 * is the agent's: let the program fault at once. */
		if (site && (s64)(h->after << 16) >> 16 != (s64)h->after)
			r->rip = payload_end - 4;
		return 0;
	case SF_X_CODE:
		/* The jump in its place goes, and what the launcher has left here comes: the bytes that stood
		 * there, with those of the instruction as the fault makes them (crates/replica/src/flips.rs). */
		if (put(f->target, f->place.disp, f->place.pointers))
			return 1;
		r->rip = f->addr;
		return 0;
	case SF_X_CRASH:
		if (!site)
			__builtin_trap();
		r->rip -= 4; /* the end of every payload: ud2, then a jump to itself */
		return 0;
	default:
		while (!site)
			__builtin_ia32_pause();
		r->rip -= 2;
		return 0;
	}
}

static void hit(u32 i, const struct sf_strike *f, u64 n, struct sf_regs *r)
{
	struct sf_hit now = { .n = n, .tsc = sf_tsc(), .cpu = sf_cpu(), .addr = f->when == SF_T_SITE ? f->addr : r->rip };
	if (strike(&FLIP(i)->choice, f, &own[i].struck, HIT(i, me.slot), &now, r) && f->once && f->when == SF_T_SITE) {
		own[i].strike = *f;
		own[i].left = tls.flip_count[i];
		tls.flip_count[i] = 1;
		tls.flip_after[i] = 0;
	}
}

/* An execution that was struck never came to its end (it faulted, and a handler jumped away): what is
 * left of it in memory is put right, registers are another execution's by now. 1: the one that is
 * about to happen is one more on the way to the next strike. */
static int given_up(u32 i, struct sf_regs *r)
{
	const struct sf_strike *f = &own[i].strike;
	tls.flip_after[i] = 1;
	if (f->what == SF_X_MEM || f->what == SF_X_FSBASE)
		finish(f, &own[i].struck, HIT(i, me.slot), r);
	tls.flip_count[i] = --own[i].left;
	return own[i].left != 0;
}

static u64 soonest(u32 when)
{
	u64 first = ~0ull;
	for (u32 i = 0; i < SF_FLIPS_MAX; i++) {
		const struct sf_flip *f = FLIP(i);
		if (f->strike.what && f->strike.when == when && (f->slots >> me.slot & 1) && !own[i].spent && f->event < first)
			first = f->event;
	}
	/* The program's number, as the log counts. */
	return first == ~0ull ? first : first + app.own_events;
}

static void wait_for_events(void)
{
	tls.flip_event = soonest(SF_T_EVENT);
	tls.flip_voted = soonest(SF_T_VOTED);
	tls.flip_claim = soonest(SF_T_CLAIM);
	tls.flip_result = soonest(SF_T_RESULT);
}

static void on_event(u32 when, struct sf_regs *agent)
{
	if (me.own_event)
		return;
	for (u32 i = 0; i < SF_FLIPS_MAX; i++) {
		const struct sf_flip *f = FLIP(i);
		if (!f->strike.what || f->strike.when != when || own[i].spent || !(f->slots >> me.slot & 1) ||
		    f->event + app.own_events != me.next)
			continue;
		own[i].spent = 1;
		wait_for_events();
		hit(i, &f->strike, f->event, f->strike.agent ? agent : me.regs);
	}
}

int sf_flip_is_due(void)
{
	return load(&NOTES->due[me.slot]) != 0;
}

/* `r`: the program's registers, wherever it is; in one of the agent's calls those that it comes back with.
 * `fp`: the vector state that it goes on with. */
void sf_flip_tick(struct sf_regs *r, u8 *fp)
{
	u32 due = __atomic_exchange_n(&NOTES->due[me.slot], 0, __ATOMIC_ACQ_REL);
	framed = fp;
	for (u32 i = 0; i < SF_FLIPS_MAX; i++) {
		const struct sf_strike *f = &FLIP(i)->strike;
		if (!(due >> i & 1) || !f->what || f->when != SF_T_TICK || !(FLIP(i)->slots >> me.slot & 1))
			continue;
		own[i].n++;
		if (f->target && (r->rip < f->next || r->rip >= f->target))
			HIT(i, me.slot)->missed++;
		else
			hit(i, f, own[i].n, r);
	}
	framed = NULL;
}

/* Low byte of desc: SF_DESC_FLIP, then the flip and whether its instruction is done; or
 * SF_DESC_FLIP_EVENT, then which of the moments of an event it is (faults.h, SF_FLIP_POINT). */
void sf_flip_hit(struct sf_regs *r, u64 desc)
{
	u32 i = desc >> 8 & 0xff;
	if ((desc & 0xff) == SF_DESC_FLIP_EVENT) {
		on_event(i, r);
		return;
	}
	if (i >= SF_FLIPS_MAX)
		return;
	struct sf_strike f = FLIP(i)->strike;
	if (desc & SF_FLIP_OWN)
		memcpy(&f, (const u8 *)r->rip - SF_FLIP_TRAILER - sizeof f, sizeof f);
	if (desc & SF_FLIP_DONE) {
		tls.flip_after[i] = 1;
		tls.flip_count[i] = own[i].left;
		finish(&f, &own[i].struck, HIT(i, me.slot), r);
		return;
	}
	if (!tls.flip_after[i] && given_up(i, r))
		return;
	u64 n = reached(&FLIP(i)->choice, &own[i].n, &tls.flip_count[i]);
	NOTES->next[i][me.slot] = own[i].n;
	hit(i, &f, n, r);
}

/* ---- arming ---- */

void sf_flip_disarm(void)
{
	for (u32 i = 0; i < SF_FLIPS_MAX; i++) {
		tls.flip_count[i] = NEVER;
		tls.flip_after[i] = 1;
		own[i].spent = 1;
	}
	tls.flip_event = tls.flip_voted = tls.flip_claim = tls.flip_result = ~0ull;
}

void sf_flip_arm(void)
{
	memset(own, 0, sizeof own);
	sf_flip_disarm();
	for (u32 i = 0; i < SF_FLIPS_MAX; i++) {
		const struct sf_flip *f = FLIP(i);
		if (!f->strike.what || !(f->slots >> me.slot & 1))
			continue;
		own[i].spent = 0;
		if (f->strike.when == SF_T_SITE)
			tls.flip_count[i] = own[i].n = f->choice.first;
	}
	wait_for_events();
}

/* Who takes the place of a struck replica: its defect is still there, and counts on. The executions
 * since it last counted down went with the one before. */
void sf_flip_rearm(void)
{
	sf_flip_disarm();
	for (u32 i = 0; i < SF_FLIPS_MAX; i++) {
		const struct sf_flip *f = FLIP(i);
		const struct sf_choice *c = &f->choice;
		if (!f->strike.what || f->strike.when != SF_T_SITE || c->last != ~0ull || !(f->slots >> me.slot & 1))
			continue;
		/* Code comes whole from who is copied: it was wrong in the process that is gone. */
		if (f->strike.what == SF_X_CODE)
			continue;
		u64 next = NOTES->next[i][me.slot];
		own[i].n = next ? next : c->first;
		tls.flip_count[i] = next ? c->step : c->first;
	}
}

/* An event of the agent's own has passed: the program's next one has another number in the log. */
void sf_flip_moved(void)
{
	wait_for_events();
}

void sf_flip_alarm(void)
{
	NOTES->alarm_tsc = sf_tsc();
}
