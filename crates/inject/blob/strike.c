/* Strike: faults carried out inside a bare program.
 *
 *   payload counts down ──► si_entry ──► si_strike: count phase ──► the instruction
 *                                                                       │
 *         the program goes on ◄── finish phase, if something is undone ◄┘
 *
 * Freestanding, position independent, general registers only: vector state belongs to the
 * program. Nothing of the program's is called; its memory is reached by process_vm_readv and
 * process_vm_writev, which fail where a load would trap, and by /proc/self/mem where the page is
 * read-only.
 *
 * Invariants
 *  1. What may end the program is recorded before it does.
 *  2. A hit whose place cannot be reached (a wild address) is none; it is counted as missed.
 *  3. Only what the fault says changes: registers, flags, red zone and vector state are kept.
 *
 * Not covered: programs whose seccomp filter kills on those calls; shadow stacks.
 */
#include "strike.h"

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint8_t u8;
typedef int64_t s64;

struct regs {
	u64 r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi;
	u64 rsp, rip, eflags;
};

extern u64 si_shared;
#define HEAD ((struct si_head *)si_shared)
#define FAULT(i) ((struct si_fault *)(si_shared + SI_OFF_FAULTS) + (i))
#define HIT(i) ((struct si_hit *)(si_shared + SI_OFF_HITS) + (i))
#define SITE(i) ((struct si_site *)(si_shared + SI_OFF_SITES) + (i))
#define COUNTER(i) ((u64 *)(si_shared + SI_OFF_COUNTERS) + (i))
#define AFTER(i) ((u64 *)(si_shared + SI_OFF_AFTER) + (i))

/* From the return address of a payload's call to its end: lea, jmp, the slot (payload.rs). */
#define PAYLOAD_REST 15
#define NEVER (1ull << 62)

static u8 vectors[8192] __attribute__((aligned(64)));

void *memcpy(void *to, const void *from, size_t n)
{
	void *at = to;
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n)::"memory");
	return at;
}

void *memset(void *to, int value, size_t n)
{
	void *at = to;
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(value) : "memory");
	return at;
}

enum { NR_mprotect = 10, NR_pwrite64 = 18, NR_getpid = 39, NR_kill = 62, NR_open = 2, NR_close = 3, NR_arch_prctl = 158, NR_vm_readv = 310, NR_vm_writev = 311 };

static s64 call6(u64 nr, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
	register u64 r10 __asm__("r10") = d;
	register u64 r8 __asm__("r8") = e;
	register u64 r9 __asm__("r9") = f;
	s64 r;
	__asm__ volatile("syscall" : "=a"(r) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return r;
}

static u64 own_pid(void)
{
	return (u64)call6(NR_getpid, 0, 0, 0, 0, 0, 0);
}

static int copy(u64 nr, u64 mine, u64 theirs, u64 n)
{
	u64 local[2] = { mine, n }, remote[2] = { theirs, n };
	return call6(nr, own_pid(), (u64)local, 1, (u64)remote, 1, 0) != (s64)n;
}

static int get(void *to, u64 at, u64 n)
{
	return copy(NR_vm_readv, (u64)to, at, n);
}

/* Code and constants are hit as well: a cell does not know that it is read-only. */
static int put(u64 at, const void *from, u64 n)
{
	static const char name[] = "/proc/self/mem";
	if (!copy(NR_vm_writev, (u64)from, at, n))
		return 0;
	s64 fd = call6(NR_open, (u64)name, 2 | 02000000, 0, 0, 0, 0);
	if (fd < 0)
		return 1;
	s64 done = call6(NR_pwrite64, (u64)fd, (u64)from, n, at, 0, 0);
	call6(NR_close, (u64)fd, 0, 0, 0, 0, 0);
	return done != (s64)n;
}

static u64 *reg(struct regs *r, u32 n)
{
	static const u8 where[17] = { 10, 11, 12, 5, 15, 4, 13, 14, 9, 8, 7, 6, 3, 2, 1, 0, 17 };
	return (u64 *)r + where[n <= 16 ? n : 16];
}

static u64 changed(const struct si_fault *f, const struct si_site *s, u64 value, u32 word)
{
	u64 m = s->mask[word];
	return f->change == 1 ? value & ~m : f->change == 2 ? value | m : value ^ m;
}

static u32 mask_bytes(const struct si_site *s)
{
	for (u32 w = 8; w-- > 0;)
		if (s->mask[w])
			return w * 8 + (71 - (u32)__builtin_clzll(s->mask[w])) / 8;
	return 0;
}

static int place(const struct si_site *s, struct regs *r, u64 *out)
{
	const struct si_place *p = &s->place;
	u64 at = 0;
	if (p->from == SI_F_FS)
		call6(NR_arch_prctl, 0x1003 /* ARCH_GET_FS */, (u64)&at, 0, 0, 0, 0);
	if (p->base != SI_REG_NONE)
		at += *reg(r, p->base);
	if (p->index != SI_REG_NONE)
		at += *reg(r, p->index) * p->scale;
	at += (u64)p->disp[0];
	for (u32 i = 0; i < p->pointers; i++) {
		if (get(&at, at, 8))
			return 1;
		at += (u64)p->disp[i + 1];
	}
	*out = at;
	return 0;
}

/* ---- vector state, at the places of the standard format (Intel SDM vol. 1, 13.4) ---- */

static u8 *vector_byte(u32 index, u32 byte)
{
	if (index >= 16)
		return vectors + HEAD->zmm_more + 64 * (index - 16) + byte;
	if (byte < 16)
		return vectors + 160 + 16 * index + byte;
	if (byte < 32)
		return vectors + HEAD->ymm + 16 * index + byte - 16;
	return vectors + HEAD->zmm_high + 32 * index + byte - 32;
}

static u8 *state_byte(const struct si_site *s, u32 byte)
{
	switch (s->what) {
	case SI_MXCSR: return vectors + 24 + byte;
	case SI_KMASK: return vectors + HEAD->kmask + 8 * s->reg + byte;
	default: return vector_byte(s->reg, byte);
	}
}

static void note(const struct si_site *s, struct si_hit *h)
{
	u32 w = 0;
	while (w < 7 && !s->mask[w])
		w++;
	memcpy(&h->before, s->bytes + 8 * w, 8);
	memcpy(&h->after, s->made + 8 * w, 8);
}

static void vector_hit(const struct si_fault *f, struct si_site *s, struct si_hit *h, int undo)
{
	u64 mask = HEAD->xmask;
	u32 n = (mask_bytes(s) + 7) & ~7u; /* whole words, for the record */
	memset(vectors, 0, sizeof vectors);
	__asm__ volatile("xsave64 (%0)" ::"r"(vectors), "a"((u32)mask), "d"((u32)(mask >> 32)) : "memory");
	/* A part in its initial state is stored as such by this bit alone: all are made explicit.
	 * The first 160 bytes of the legacy part are always there. */
	u64 *present = (u64 *)(vectors + 512);
	if (!(*present & 1)) { /* x87: control word and tags of a fresh unit */
		vectors[0] = 0x7f;
		vectors[1] = 3;
	}
	*present |= mask;
	if (!undo) {
		memset(s->bytes, 0, sizeof s->bytes);
		memset(s->made, 0, sizeof s->made);
		for (u32 i = 0; i < n; i++)
			s->bytes[i] = *state_byte(s, i);
		for (u32 w = 0; w < 8; w++) {
			u64 v;
			memcpy(&v, s->bytes + 8 * w, 8);
			v = changed(f, s, v, w);
			memcpy(s->made + 8 * w, &v, 8);
		}
		for (u32 i = 0; i < n; i++)
			*state_byte(s, i) = s->made[i];
		note(s, h);
	} else {
		for (u32 i = 0; i < n; i++)
			if (*state_byte(s, i) == s->made[i])
				*state_byte(s, i) = s->bytes[i];
	}
	__asm__ volatile("xrstor64 (%0)" ::"r"(vectors), "a"((u32)mask), "d"((u32)(mask >> 32)) : "memory");
}

static int memory_hit(const struct si_fault *f, struct si_site *s, struct si_hit *h, u64 at)
{
	u32 n = mask_bytes(s);
	s->kept[0] = at;
	memset(s->bytes, 0, sizeof s->bytes);
	if (get(s->bytes, at, n))
		return 1;
	for (u32 w = 0; w < 8; w++) {
		u64 v;
		memcpy(&v, s->bytes + 8 * w, 8);
		v = changed(f, s, v, w);
		memcpy(s->made + 8 * w, &v, 8);
	}
	note(s, h);
	return put(at, s->made, n);
}

static void memory_undo(struct si_site *s)
{
	u32 n = mask_bytes(s);
	u8 now[64];
	if (get(now, s->kept[0], n))
		return;
	for (u32 i = 0; i < n; i++)
		if (now[i] == s->made[i])
			now[i] = s->bytes[i];
	put(s->kept[0], now, n);
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

static void ud2(void)
{
	__asm__ volatile("ud2");
}

static void spin(void)
{
	for (;;)
		__builtin_ia32_pause();
}

/* 1: the place cannot be reached. */
static int hit(const struct si_fault *f, struct si_site *s, struct si_hit *h, struct regs *r)
{
	u64 at, *p;
	switch (s->what) {
	case SI_REG:
		p = reg(r, s->reg);
		h->before = s->kept[1] = *p;
		h->after = s->delta = *p = changed(f, s, *p, 0);
		return 0;
	case SI_VECTOR:
	case SI_KMASK:
	case SI_MXCSR:
		vector_hit(f, s, h, 0);
		return 0;
	case SI_FSBASE:
		call6(NR_arch_prctl, 0x1003, (u64)&s->kept[1], 0, 0, 0, 0);
		h->before = s->kept[1];
		h->after = changed(f, s, s->kept[1], 0);
		return call6(NR_arch_prctl, 0x1002 /* ARCH_SET_FS */, h->after, 0, 0, 0, 0) != 0;
	case SI_MEM:
		return place(s, r, &at) || memory_hit(f, s, h, at);
	case SI_WVAL:
		return place(s, r, &s->kept[0]);
	case SI_ADDR:
		if (place(s, r, &at))
			return 1;
		p = reg(r, s->reg);
		h->before = at;
		h->after = changed(f, s, at, 0);
		s->kept[1] = *p;
		s->delta = h->after - at;
		*p += s->delta;
		return 0;
	case SI_IP:
		h->before = s->addr;
		/* A wild jump has to meet the program's own bytes: the window goes, its work is done. */
		if (s->delta)
			put(s->kept[0], s->bytes, s->delta);
		r->rip = h->after = changed(f, s, h->before, 0);
		return 0;
	case SI_CRASH:
		r->rip = (u64)ud2;
		return 0;
	case SI_HANG:
		r->rip = (u64)spin;
		return 0;
	case SI_STOP:
		call6(NR_kill, own_pid(), 19, 0, 0, 0, 0);
		return 0;
	case SI_KILL:
		call6(NR_kill, own_pid(), s->signal, 0, 0, 0, 0);
		return 0;
	case SI_SKIP:
		r->rip = s->next;
		return 0;
	case SI_REPEAT:
		s->kept[0] = r->rip;
		return 0;
	case SI_INVERT:
		r->rip = holds(s->condition, r->eflags) ? s->next : s->target;
		return 0;
	}
	return 1;
}

static void finish(const struct si_fault *f, struct si_site *s, struct si_hit *h, struct regs *r)
{
	u64 *p = reg(r, s->reg);
	switch (s->what) {
	case SI_REG:
	case SI_ADDR:
		if (s->undo_how == SI_U_BITS)
			*p = (*p & ~s->undo) | (s->kept[1] & s->undo);
		else if (s->undo_how == SI_U_DELTA)
			*p -= s->delta;
		else if (s->undo_how == SI_U_COMPARE && *p == (s->what == SI_REG ? s->delta : s->kept[1] + s->delta))
			*p = s->kept[1];
		break;
	case SI_VECTOR:
	case SI_KMASK:
	case SI_MXCSR:
		if (s->undo_how)
			vector_hit(f, s, h, 1);
		break;
	case SI_FSBASE:
		call6(NR_arch_prctl, 0x1002, s->kept[1], 0, 0, 0, 0);
		break;
	case SI_MEM:
		memory_undo(s);
		break;
	case SI_WVAL:
		if (memory_hit(f, s, h, s->kept[0])) {
			h->hits--;
			h->missed++;
		}
		break;
	case SI_REPEAT:
		r->rip = s->kept[0];
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

static u32 cpu(void)
{
	u64 limit;
	/* The kernel keeps CPU and node in the limit of this segment (vgetcpu). */
	__asm__ volatile("lsl %1, %0" : "=r"(limit) : "r"(0x7bull) : "cc");
	return (u32)limit & 0xfff;
}

static int chosen(const struct si_fault *f, u64 n)
{
	u32 here = cpu();
	if (f->cpus[0] | f->cpus[1] | f->cpus[2] | f->cpus[3])
		if (here >= 256 || !(f->cpus[here / 64] >> here % 64 & 1))
			return 0;
	return !f->one_in || draw(f->seed, n) % f->one_in == 0;
}

static u64 tsc(void)
{
	u32 low, high;
	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
}

static void count_phase(struct si_site *s, struct regs *r)
{
	struct si_fault *f = FAULT(s->fault);
	struct si_hit *h = HIT(s->fault);
	u64 n = f->next;
	*COUNTER(s->fault) = f->last - n >= f->step ? f->step : NEVER;
	f->next = n + f->step;
	struct si_hit now = { .n = n, .tsc = tsc(), .cpu = cpu(), .addr = s->addr, .pid = own_pid() };
	if (!chosen(f, n))
		return;
	int again = h->hits != 0;
	if (!again) {
		now.missed = h->missed;
		*h = now;
	}
	h->hits++;
	if (hit(f, s, again ? &now : h, r)) {
		h->hits--;
		h->missed++;
		return;
	}
	if (s->once)
		*AFTER(s->fault) = 0;
}

u64 si_strike(struct regs *r, u64 desc, u64 word)
{
	struct si_site *s = SITE(desc & 0xffff);
	u64 sp = r->rsp;
	if (desc >> 17 & 1)
		r->eflags = word;
	else
		r->rcx = word;
	r->rip += PAYLOAD_REST;
	if (desc >> 16 & 1) {
		*AFTER(s->fault) = 1;
		finish(FAULT(s->fault), s, HIT(s->fault), r);
	} else {
		count_phase(s, r);
	}
	if (r->rsp != sp)
		return 0;
	/* rip ends 128 bytes below the stack pointer, behind the red zone. */
	u64 *frame = (u64 *)(sp - 128 - 8 * 17);
	memcpy(frame, r, 8 * 15);
	frame[15] = r->eflags;
	frame[16] = r->rip;
	return (u64)frame;
}
