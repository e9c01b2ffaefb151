/* Hit: how a fault strikes, from inside the process that it strikes.
 *
 *   count phase: strike() ──► the instruction ──► finish(), if something is undone
 *
 * Included by one file of each image (crates/agent/src/faults/flip.c, crates/inject/blob/strike.c), since
 * the two stand differently: the agent reads memory under a guard and calls the kernel through
 * its gate, a bare program has nothing but system calls. What differs is declared first, and
 * given by the including file.
 *
 * Invariants
 *  1. What may end the program is recorded before it does.
 *  2. A hit whose place cannot be reached (a wild address) is none; it is counted as missed.
 *  3. Only what the fault says changes.
 */
#include <stddef.h>
#include "fault.h"
#include "regs.h"

/* Copies from and to the program; 1: it cannot be reached. Code and constants can be written:
 * a cell does not know that it is read-only. */
static int get(void *to, uint64_t at, uint64_t n);
static int put(uint64_t at, const void *from, uint64_t n);
/* A system call, by its number: NR_getpid, NR_kill and NR_arch_prctl are the including file's. */
static int64_t call2(uint64_t nr, uint64_t a, uint64_t b);
/* Where a place starts that is neither in registers nor at the fs base; 1: nowhere. */
static int start(const struct sf_strike *f, uint64_t *at);
/* The program's vector state, in the standard format (Intel SDM vol. 1, 13.4) with every part
 * present; and where in it a part is. */
static uint8_t *vectors_save(void);
static void vectors_load(void);
static uint32_t vectors_part(uint32_t number);
/* Faults after which execution goes on elsewhere: IP, CRASH, HANG, CODE. 1: the place cannot be reached. */
static int astray(const struct sf_strike *f, struct sf_struck *s, struct sf_hit *h, struct sf_regs *r);

/* More executions than any run has. */
#define NEVER (1ull << 62)

enum { ARCH_SET_FS = 0x1002, ARCH_GET_FS = 0x1003 };

void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);

static uint64_t *reg(struct sf_regs *r, uint32_t n)
{
	/* By the hardware's number: rax rcx rdx rbx rsp rbp rsi rdi r8 to r15, rflags. */
	static const uint8_t where[17] = { 10, 11, 12, 5, 15, 4, 13, 14, 9, 8, 7, 6, 3, 2, 1, 0, 17 };
	return (uint64_t *)r + where[n <= 16 ? n : 16];
}

static uint64_t changed(const struct sf_strike *f, uint64_t value, uint32_t word)
{
	uint64_t m = f->mask[word];
	return f->change == SF_CHANGE_STUCK0 ? value & ~m : f->change == SF_CHANGE_STUCK1 ? value | m : value ^ m;
}

static uint32_t mask_bytes(const struct sf_strike *f)
{
	for (uint32_t w = 8; w-- > 0;)
		if (f->mask[w])
			return w * 8 + (71 - (uint32_t)__builtin_clzll(f->mask[w])) / 8;
	return 0;
}

static int place(const struct sf_strike *f, struct sf_regs *r, uint64_t *out)
{
	const struct sf_place *p = &f->place;
	uint64_t at = 0;
	if (p->from == SF_F_FS)
		call2(NR_arch_prctl, ARCH_GET_FS, (uint64_t)&at);
	else if (p->from != SF_F_REGS && start(f, &at))
		return 1;
	if (p->base != SF_REG_NONE)
		at += *reg(r, p->base);
	if (p->index != SF_REG_NONE)
		at += *reg(r, p->index) * p->scale;
	at += (uint64_t)p->disp[0];
	for (uint32_t i = 0; i < p->pointers; i++) {
		if (get(&at, at, 8))
			return 1;
		at += (uint64_t)p->disp[i + 1];
	}
	*out = at;
	return 0;
}

/* From `bytes` to `made`; and for the record, the 64 bits around the lowest one that is hit. */
static void make(const struct sf_strike *f, struct sf_struck *s, struct sf_hit *h)
{
	uint32_t w = 0;
	for (uint32_t i = 0; i < 8; i++) {
		uint64_t v;
		memcpy(&v, s->bytes + 8 * i, 8);
		v = changed(f, v, i);
		memcpy(s->made + 8 * i, &v, 8);
	}
	while (w < 7 && !f->mask[w])
		w++;
	memcpy(&h->before, s->bytes + 8 * w, 8);
	memcpy(&h->after, s->made + 8 * w, 8);
}

/* ---- vector state ---- */

static uint8_t *vector_byte(uint8_t *state, uint32_t index, uint32_t byte)
{
	if (index >= 16)
		return state + vectors_part(7) + 64 * (index - 16) + byte;
	if (byte < 16)
		return state + 160 + 16 * index + byte;
	if (byte < 32)
		return state + vectors_part(2) + 16 * index + byte - 16;
	return state + vectors_part(6) + 32 * index + byte - 32;
}

static uint8_t *state_byte(uint8_t *state, const struct sf_strike *f, uint32_t byte)
{
	switch (f->what) {
	case SF_X_MXCSR: return state + 24 + byte;
	case SF_X_KMASK: return state + vectors_part(5) + 8 * f->reg + byte;
	default: return vector_byte(state, f->reg, byte);
	}
}

/* undo: what is still as the fault made it becomes what it was. */
static void vector_hit(const struct sf_strike *f, struct sf_struck *s, struct sf_hit *h, int undo)
{
	/* Whole words, for the record; behind MXCSR stands its mask, which is not the program's. */
	uint32_t n = f->what == SF_X_MXCSR ? 4 : (mask_bytes(f) + 7) & ~7u;
	uint8_t *state = vectors_save();
	if (!undo) {
		memset(s->bytes, 0, sizeof s->bytes);
		for (uint32_t i = 0; i < n; i++)
			s->bytes[i] = *state_byte(state, f, i);
		make(f, s, h);
	}
	for (uint32_t i = 0; i < n; i++) {
		uint8_t *b = state_byte(state, f, i);
		if (!undo)
			*b = s->made[i];
		else if (*b == s->made[i])
			*b = s->bytes[i];
	}
	vectors_load();
}

/* ---- memory ---- */

static int memory_hit(const struct sf_strike *f, struct sf_struck *s, struct sf_hit *h, uint64_t at)
{
	uint32_t n = mask_bytes(f);
	s->at = at;
	memset(s->bytes, 0, sizeof s->bytes);
	if (get(s->bytes, at, n))
		return 1;
	make(f, s, h);
	return put(at, s->made, n);
}

static void memory_undo(const struct sf_strike *f, struct sf_struck *s)
{
	uint32_t n = mask_bytes(f);
	uint8_t now[64];
	if (get(now, s->at, n))
		return;
	for (uint32_t i = 0; i < n; i++)
		if (now[i] == s->made[i])
			now[i] = s->bytes[i];
	put(s->at, now, n);
}

/* ---- control flow ---- */

/* Intel SDM vol. 1, appendix B: conditions by the low four bits of the opcode. */
static int holds(uint32_t condition, uint64_t flags)
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

static void signal_self(uint32_t signal)
{
	call2(NR_kill, (uint64_t)call2(NR_getpid, 0, 0), signal);
}

/* ---- one hit ---- */

/* 1: the place cannot be reached. */
static int happen(const struct sf_strike *f, struct sf_struck *s, struct sf_hit *h, struct sf_regs *r)
{
	uint64_t at, *p;
	switch (f->what) {
	case SF_X_REG:
		p = reg(r, f->reg);
		h->before = s->old = *p;
		h->after = s->delta = *p = changed(f, *p, 0);
		return 0;
	case SF_X_VECTOR:
	case SF_X_KMASK:
	case SF_X_MXCSR: vector_hit(f, s, h, 0); return 0;
	case SF_X_FSBASE:
		call2(NR_arch_prctl, ARCH_GET_FS, (uint64_t)&s->old);
		h->before = s->old;
		h->after = changed(f, s->old, 0);
		return call2(NR_arch_prctl, ARCH_SET_FS, h->after) != 0;
	case SF_X_MEM: return place(f, r, &at) || memory_hit(f, s, h, at);
	case SF_X_WVAL: return place(f, r, &s->at);
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
	case SF_X_CRASH:
	case SF_X_HANG:
	case SF_X_CODE: return astray(f, s, h, r);
	case SF_X_STOP: signal_self(19); return 0;
	case SF_X_KILL: signal_self(f->signal); return 0;
	case SF_X_SKIP: r->rip = f->next; return 0;
	case SF_X_REPEAT: s->at = r->rip; return 0;
	case SF_X_INVERT: r->rip = holds(f->condition, r->eflags) ? f->next : f->target; return 0;
	}
	return 1;
}

static void finish(const struct sf_strike *f, struct sf_struck *s, struct sf_hit *h, struct sf_regs *r)
{
	uint64_t *p = reg(r, f->reg);
	switch (f->what) {
	case SF_X_REG:
	case SF_X_ADDR: {
		const uint64_t struck = f->what == SF_X_REG ? s->delta : s->old + s->delta;
		/* Bits that the instruction leaves alone are as the fault has made them, or this is another execution: the thread's
		 * first after one that never came to its end, and passed the count while another thread stood there. */
		if (f->undo_how == SF_U_BITS && !((*p ^ struck) & f->undo))
			*p = (*p & ~f->undo) | (s->old & f->undo);
		else if (f->undo_how == SF_U_DELTA)
			*p -= s->delta;
		else if (f->undo_how == SF_U_COMPARE && *p == struck)
			*p = s->old;
		break;
	}
	case SF_X_VECTOR:
	case SF_X_KMASK:
	case SF_X_MXCSR:
		if (f->undo_how)
			vector_hit(f, s, h, 1);
		break;
	case SF_X_FSBASE: call2(NR_arch_prctl, ARCH_SET_FS, s->old); break;
	case SF_X_MEM: memory_undo(f, s); break;
	case SF_X_WVAL:
		if (memory_hit(f, s, h, s->at)) {
			h->hits--;
			h->missed++;
		}
		break;
	case SF_X_REPEAT: r->rip = s->at; break;
	}
}

/* ---- which executions ---- */

/* splitmix64: each execution draws its own number, so a run can be repeated. */
static uint64_t draw(uint64_t seed, uint64_t n)
{
	uint64_t z = seed + n * 0x9e3779b97f4a7c15ull;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static int chosen(const struct sf_choice *c, uint64_t n, uint32_t cpu)
{
	if (c->cpus[0] | c->cpus[1] | c->cpus[2] | c->cpus[3])
		if (cpu >= 256 || !(c->cpus[cpu / 64] >> cpu % 64 & 1))
			return 0;
	return !c->one_in || draw(c->seed, n) % c->one_in == 0;
}

/* Which execution it is that a counter has led to; sets it for the next one. */
static uint64_t reached(const struct sf_choice *c, uint64_t *next, uint64_t *counter)
{
	uint64_t n = *next;
	*counter = c->last - n >= c->step ? c->step : NEVER;
	*next = n + c->step;
	return n;
}

/* `now` says when and where; 1: it is hit. */
static int strike(const struct sf_choice *c, const struct sf_strike *f, struct sf_struck *s, struct sf_hit *h, struct sf_hit *now,
		  struct sf_regs *r)
{
	if (!chosen(c, now->n, now->cpu))
		return 0;
	int again = h->hits != 0;
	if (!again) {
		now->missed = h->missed;
		*h = *now;
	}
	h->hits++;
	if (happen(f, s, again ? now : h, r)) {
		h->hits--;
		h->missed++;
		return 0;
	}
	return 1;
}
