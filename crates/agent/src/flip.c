/* Flip: the faults that `--flip` asks for, carried out inside the victim.
 *
 *   payload counts down ──► sf_entry_flip ──► sf_flip_hit: count phase ──► the instruction
 *                                                                            │
 *         the program goes on ◄── finish phase, if there is something to undo ◄┘
 *
 * An event's fault needs no payload: the places in the agent where an event passes compare
 * its number with the next one that a flip waits for (agent.h, SF_FLIP_POINT).
 *
 * Invariants
 *  1. Every replica carries the same hooks; only victims have their counters set, so a run
 *     with a fault differs from one without in the fault alone.
 *  2. A fault happens in the process it was armed in. Copies made by a repair or a snapshot
 *     are disarmed: a particle does not strike twice.
 *  3. A hit is recorded whether or not it changed anything; one whose place cannot be reached
 *     (a wild address) is none.
 *
 * Not covered: flips inside this file and flip.S, which run on one stack of their own.
 */
#include "agent.h"
#include "flip.h"

#define FLIP(i) ((struct sf_flip *)(SF_SHARED + SF_OFF_FLIPS) + (i))
#define HIT(i, slot) ((struct sf_flip_hit *)(SF_SHARED + SF_OFF_FLIP_HITS) + (i) * SF_REPLICAS_MAX + (slot))

/* More executions than any run has. */
#define NEVER (1ull << 62)

u8 sf_flip_stack[16384] __attribute__((aligned(64)));
static u8 vectors[16384] __attribute__((aligned(64)));

/* What a flip of this process has been up to. */
static struct state {
	u64 n;         /* the execution that its counter leads to */
	u64 spent;     /* an event's flip that has hit */
	u64 at;        /* address or value kept for the finish phase */
	u64 old, delta;
	u8 bytes[64], made[64];
} own[SF_FLIPS_MAX];

enum { NR_mprotect = 10, NR_getpid = 39, NR_kill = 62, NR_arch_prctl = 158 };

static s64 raw3(u64 nr, u64 a, u64 b, u64 c)
{
	u64 call[7] = { nr, a, b, c, 0, 0, 0 };
	return sf_raw(call);
}

static u64 *reg(struct sf_regs *r, u32 n)
{
	switch (n) {
	case 0: return &r->rax;
	case 1: return &r->rcx;
	case 2: return &r->rdx;
	case 3: return &r->rbx;
	case 4: return &r->rsp;
	case 5: return &r->rbp;
	case 6: return &r->rsi;
	case 7: return &r->rdi;
	case 8: return &r->r8;
	case 9: return &r->r9;
	case 10: return &r->r10;
	case 11: return &r->r11;
	case 12: return &r->r12;
	case 13: return &r->r13;
	case 14: return &r->r14;
	case 15: return &r->r15;
	default: return &r->eflags;
	}
}

static u64 changed(const struct sf_flip *f, u64 value, u32 word)
{
	u64 m = f->mask[word];
	return f->change == SF_CHANGE_STUCK0 ? value & ~m : f->change == SF_CHANGE_STUCK1 ? value | m : value ^ m;
}

static u32 mask_bytes(const struct sf_flip *f)
{
	for (u32 w = 8; w-- > 0;)
		if (f->mask[w])
			return w * 8 + (71 - (u32)__builtin_clzll(f->mask[w])) / 8;
	return 0;
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

/* Code and constants are flipped as well: a cell does not know that it is read-only. */
static int write_place(u64 at, const void *from, u64 n)
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

static int place(const struct sf_flip *f, struct sf_regs *r, u64 *out)
{
	const struct sf_place *p = &f->place;
	u64 at = 0;
	switch (p->from) {
	case SF_PL_UNKNOWN:
		return 1; /* its module is not mapped */
	case SF_PL_FS:
		raw3(NR_arch_prctl, 0x1003 /* ARCH_GET_FS */, (u64)&at, 0);
		break;
	case SF_PL_ENTRY:
		at = f->when == SF_T_ARRIVAL ? (u64)ARRIVAL(me.slot, me.next) : (u64)RESULT(me.next - me.base);
		break;
	}
	if (p->base != SF_REG_NONE)
		at += *reg(r, p->base);
	if (p->index != SF_REG_NONE)
		at += *reg(r, p->index) * p->scale;
	at += (u64)p->disp[0];
	for (u32 i = 0; i < p->pointers; i++) {
		if (guarded_copy(&at, (void *)at, 8))
			return 1;
		at += (u64)p->disp[i + 1];
	}
	*out = at;
	return 0;
}

/* ---- vector state, at the places of the standard format (Intel SDM vol. 1, 13.4) ---- */

static u32 component(u32 n)
{
	u32 a = 0xd, b, c = n, d;
	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return b;
}

static u8 *vector_byte(u32 index, u32 byte)
{
	if (index >= 16)
		return vectors + component(7) + 64 * (index - 16) + byte;
	if (byte < 16)
		return vectors + 160 + 16 * index + byte;
	if (byte < 32)
		return vectors + component(2) + 16 * index + byte - 16;
	return vectors + component(6) + 32 * index + byte - 32;
}

static u8 *state_byte(const struct sf_flip *f, u32 byte)
{
	switch (f->what) {
	case SF_X_MXCSR: return vectors + 24 + byte;
	case SF_X_KMASK: return vectors + component(5) + 8 * f->reg + byte;
	default: return vector_byte(f->reg, byte);
	}
}

/* For the record: the 64 bits around the lowest one that is hit. */
static void note(const struct sf_flip *f, const struct state *s, struct sf_flip_hit *h)
{
	u32 w = 0;
	while (w < 7 && !f->mask[w])
		w++;
	memcpy(&h->before, s->bytes + 8 * w, 8);
	memcpy(&h->after, s->made + 8 * w, 8);
}

/* Exchanges the bytes that the mask covers. undo: puts `old` back where still `made`. */
static void vector_hit(const struct sf_flip *f, struct state *s, struct sf_flip_hit *h, int undo)
{
	u32 n = mask_bytes(f);
	memset(s->bytes, 0, sizeof s->bytes);
	memset(s->made, 0, sizeof s->made);
	sf_fp_save(vectors);
	for (u32 i = 0; i < n; i++) {
		u8 *b = state_byte(f, i);
		if (undo) {
			if (*b == s->made[i])
				*b = s->bytes[i];
			continue;
		}
		s->bytes[i] = *b;
		*b = s->made[i] = (u8)(changed(f, (u64)*b << 8 * (i % 8), i / 8) >> 8 * (i % 8));
	}
	sf_fp_load(vectors);
	if (!undo)
		note(f, s, h);
}

/* ---- one hit ---- */

static int memory_hit(const struct sf_flip *f, struct state *s, struct sf_flip_hit *h, u64 at)
{
	u32 n = mask_bytes(f);
	s->at = at;
	memset(s->bytes, 0, sizeof s->bytes);
	if (guarded_copy(s->bytes, (void *)at, n))
		return 1;
	for (u32 w = 0; w < 8; w++) {
		u64 v;
		memcpy(&v, s->bytes + 8 * w, 8);
		v = changed(f, v, w);
		memcpy(s->made + 8 * w, &v, 8);
	}
	note(f, s, h);
	return write_place(at, s->made, n);
}

static void memory_undo(const struct sf_flip *f, struct state *s)
{
	u32 n = mask_bytes(f);
	u8 now[64];
	if (guarded_copy(now, (void *)s->at, n))
		return;
	for (u32 i = 0; i < n; i++)
		if (now[i] == s->made[i])
			now[i] = s->bytes[i];
	write_place(s->at, now, n);
}

/* Intel SDM vol. 1, appendix B: conditions by the low four bits of the opcode. */
static int holds(u32 condition, u64 flags)
{
	int cf = flags & 1, pf = flags >> 2 & 1, zf = flags >> 6 & 1, sf = flags >> 7 & 1, of = flags >> 11 & 1, yes = 0;
	switch (condition >> 1) {
	case 0: yes = of; break;
	case 1: yes = cf; break;
	case 2: yes = zf; break;
	case 3: yes = cf | zf; break;
	case 4: yes = sf; break;
	case 5: yes = pf; break;
	case 6: yes = sf != of; break;
	case 7: yes = zf | (sf != of); break;
	}
	return yes ^ (int)(condition & 1);
}

static void die_here(u32 signal)
{
	raw3(NR_kill, (u64)raw3(NR_getpid, 0, 0, 0), signal, 0);
}

/* 1: the place cannot be reached. `wait`: there is a finish phase behind the instruction. */
static int strike(const struct sf_flip *f, struct state *s, struct sf_flip_hit *h, struct sf_regs *r)
{
	u64 at, *p;
	int site = f->when == SF_T_SITE;
	s->at = r->rip;
	switch (f->what) {
	case SF_X_REG:
		p = reg(r, f->reg);
		h->before = s->old = *p;
		h->after = s->delta = *p = changed(f, *p, 0);
		return 0;
	case SF_X_VECTOR:
	case SF_X_KMASK:
	case SF_X_MXCSR:
		vector_hit(f, s, h, 0);
		return 0;
	case SF_X_FSBASE:
		raw3(NR_arch_prctl, 0x1003, (u64)&s->old, 0);
		h->before = s->old;
		h->after = changed(f, s->old, 0);
		return raw3(NR_arch_prctl, 0x1002 /* ARCH_SET_FS */, h->after, 0) != 0;
	case SF_X_MEM:
		return place(f, r, &at) || memory_hit(f, s, h, at);
	case SF_X_WVAL:
		return place(f, r, &s->at);
	case SF_X_ADDR:
		if (place(f, r, &at))
			return 1;
		p = reg(r, f->reg);
		h->before = at;
		h->after = changed(f, at, 0);
		s->old = *p;
		s->delta = h->after - at;
		*p += s->delta;
		return 0;
	case SF_X_IP:
		h->before = site ? f->site : r->rip;
		r->rip = h->after = changed(f, h->before, 0);
		/* To an address that has no page in any process the jump itself would fault, and it
		 * is the agent's: let the program fault at once. */
		if (site && (s64)(h->after << 16) >> 16 != (s64)h->after)
			r->rip = s->at - 4;
		return 0;
	case SF_X_CRASH:
		if (!site)
			__builtin_trap();
		r->rip -= 4; /* the end of every payload: ud2, then a jump to itself */
		return 0;
	case SF_X_HANG:
		while (!site)
			__builtin_ia32_pause();
		r->rip -= 2;
		return 0;
	case SF_X_STOP:
		die_here(19);
		return 0;
	case SF_X_KILL:
		die_here(f->signal);
		return 0;
	case SF_X_SKIP:
		r->rip = f->next;
		return 0;
	case SF_X_REPEAT:
		s->at = r->rip;
		return 0;
	case SF_X_INVERT:
		r->rip = holds(f->condition, r->eflags) ? f->next : f->target;
		return 0;
	}
	return 1;
}

static void finish(const struct sf_flip *f, struct state *s, struct sf_flip_hit *h, struct sf_regs *r)
{
	u64 *p = reg(r, f->reg);
	switch (f->what) {
	case SF_X_REG:
	case SF_X_ADDR:
		if (f->undo_how == SF_U_BITS)
			*p = (*p & ~f->undo) | (s->old & f->undo);
		else if (f->undo_how == SF_U_DELTA)
			*p -= s->delta;
		else if (f->undo_how == SF_U_COMPARE && *p == (f->what == SF_X_REG ? s->delta : s->old + s->delta))
			*p = s->old;
		break;
	case SF_X_VECTOR:
	case SF_X_KMASK:
	case SF_X_MXCSR:
		if (f->undo_how)
			vector_hit(f, s, h, 1);
		break;
	case SF_X_FSBASE:
		raw3(NR_arch_prctl, 0x1002, s->old, 0);
		break;
	case SF_X_MEM:
		memory_undo(f, s);
		break;
	case SF_X_WVAL:
		if (memory_hit(f, s, h, s->at)) {
			h->hits--;
			h->missed++;
		}
		break;
	case SF_X_REPEAT:
		r->rip = s->at;
		break;
	}
}

/* splitmix64: each execution draws its own number, so a run can be repeated. */
static u64 draw(u64 seed, u64 n)
{
	u64 z = seed + n * 0x9e3779b97f4a7c15ull;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static int chosen(const struct sf_flip *f, u64 n)
{
	u32 cpu = sf_cpu();
	if (f->cpus[0] | f->cpus[1] | f->cpus[2] | f->cpus[3])
		if (cpu >= 256 || !(f->cpus[cpu / 64] >> cpu % 64 & 1))
			return 0;
	return !f->one_in || draw(f->seed, n) % f->one_in == 0;
}

static void hit(u32 i, u64 n, struct sf_regs *r)
{
	const struct sf_flip *f = FLIP(i);
	struct sf_flip_hit now = { .n = n, .tsc = sf_tsc(), .cpu = sf_cpu(), .ip = f->when == SF_T_SITE ? f->site : r->rip };
	struct sf_flip_hit *h = HIT(i, me.slot);
	if (!chosen(f, n))
		return;
	/* What may end this replica is recorded before it does. */
	int again = h->hits != 0;
	if (!again)
		*h = now;
	h->hits++;
	if (strike(f, &own[i], again ? &now : h, r)) {
		h->hits--;
		h->missed++;
		return;
	}
	if (f->once && f->when == SF_T_SITE)
		tls.flip_after[i] = 0;
}

static u64 soonest(u32 when)
{
	u64 first = ~0ull;
	for (u32 i = 0; i < SF_FLIPS_MAX; i++) {
		const struct sf_flip *f = FLIP(i);
		if (f->what && f->when == when && (f->slots >> me.slot & 1) && !own[i].spent && f->event < first)
			first = f->event;
	}
	/* The program's number, as the log counts. */
	return first == ~0ull ? first : first + app.own_events;
}

static void wait_for_events(void)
{
	tls.flip_event = soonest(SF_T_EVENT);
	tls.flip_voted = soonest(SF_T_VOTED);
	tls.flip_arrival = soonest(SF_T_ARRIVAL);
	tls.flip_result = soonest(SF_T_RESULT);
}

static void on_event(u32 when, struct sf_regs *agent)
{
	if (me.own_event)
		return;
	for (u32 i = 0; i < SF_FLIPS_MAX; i++) {
		const struct sf_flip *f = FLIP(i);
		if (!f->what || f->when != when || own[i].spent || !(f->slots >> me.slot & 1) || f->event + app.own_events != me.next)
			continue;
		own[i].spent = 1;
		wait_for_events();
		hit(i, f->event, f->agent ? agent : me.regs);
	}
}

/* Low byte of desc: SF_DESC_FLIP, then the flip and whether its instruction is done; or
 * SF_DESC_FLIP_EVENT, then which of the moments of an event it is (agent.h, SF_FLIP_POINT). */
void sf_flip_hit(struct sf_regs *r, u64 desc)
{
	u32 i = desc >> 8 & 0xff;
	if ((desc & 0xff) == SF_DESC_FLIP_EVENT) {
		on_event(i, r);
		return;
	}
	if (i >= SF_FLIPS_MAX)
		return;
	const struct sf_flip *f = FLIP(i);
	if (desc >> 16 & 1) {
		tls.flip_after[i] = 1;
		finish(f, &own[i], HIT(i, me.slot), r);
		return;
	}
	u64 n = own[i].n;
	tls.flip_count[i] = f->last - n >= f->step ? f->step : NEVER;
	own[i].n = n + f->step;
	hit(i, n, r);
}

/* ---- arming ---- */

void sf_flip_disarm(void)
{
	for (u32 i = 0; i < SF_FLIPS_MAX; i++) {
		tls.flip_count[i] = NEVER;
		tls.flip_after[i] = 1;
		own[i].spent = 1;
	}
	tls.flip_event = tls.flip_voted = tls.flip_arrival = tls.flip_result = ~0ull;
}

void sf_flip_arm(void)
{
	sf_flip_disarm();
	for (u32 i = 0; i < SF_FLIPS_MAX; i++) {
		const struct sf_flip *f = FLIP(i);
		if (!f->what || !(f->slots >> me.slot & 1))
			continue;
		own[i].spent = 0;
		if (f->when == SF_T_SITE)
			tls.flip_count[i] = own[i].n = f->first;
	}
	wait_for_events();
}

/* An event of the agent's own has passed: the program's next one has another number in the log. */
void sf_flip_moved(void)
{
	wait_for_events();
}

void sf_flip_alarm(void)
{
	((struct sf_flip_notes *)(SF_SHARED + SF_OFF_FLIP_NOTES))->alarm_tsc = sf_tsc();
}
