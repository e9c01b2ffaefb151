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
 *  4. What is undone is the execution that was struck: one that never ended (it faulted, and a handler
 *     jumped away) is given up when its thread comes to the next one.
 *
 * Not covered: programs whose seccomp filter kills on those calls; shadow stacks.
 */
#include "strike.h"
enum {
	NR_open = 2,
	NR_close = 3,
	NR_pwrite64 = 18,
	NR_getpid = 39,
	NR_kill = 62,
	NR_arch_prctl = 158,
	NR_gettid = 186,
	NR_vm_readv = 310,
	NR_vm_writev = 311
};
#include "hit.h"

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint8_t u8;
typedef int64_t s64;

extern u64 si_shared;
#define HEAD ((struct si_head *)si_shared)
#define FAULT(i) ((struct si_fault *)(si_shared + SI_OFF_FAULTS) + (i))
#define HIT(i) ((struct sf_hit *)(si_shared + SI_OFF_HITS) + (i))
#define SITE(i) ((struct si_site *)(si_shared + SI_OFF_SITES) + (i))
#define COUNTER(i) ((u64 *)(si_shared + SI_OFF_COUNTERS) + (i))
#define AFTER(i) ((u64 *)(si_shared + SI_OFF_AFTER) + (i))

/* From the return address of a payload's call to its end: lea, jmp, the slot (payload.rs). */
#define PAYLOAD_REST 15

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

static s64 call6(u64 nr, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
	register u64 r10 __asm__("r10") = d;
	register u64 r8 __asm__("r8") = e;
	register u64 r9 __asm__("r9") = f;
	s64 r;
	__asm__ volatile("syscall" : "=a"(r) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return r;
}

static s64 call2(u64 nr, u64 a, u64 b)
{
	return call6(nr, a, b, 0, 0, 0, 0);
}

static u64 own_pid(void)
{
	return (u64)call2(NR_getpid, 0, 0);
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

static int start(const struct sf_strike *f, u64 *at)
{
	(void)f, (void)at;
	return 1; /* no log here, and every module is mapped */
}

/* ---- vector state ---- */

static u8 *vectors_save(void)
{
	u64 mask = HEAD->xmask;
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
	return vectors;
}

static void vectors_load(void)
{
	u64 mask = HEAD->xmask;
	__asm__ volatile("xrstor64 (%0)" ::"r"(vectors), "a"((u32)mask), "d"((u32)(mask >> 32)) : "memory");
}

static u32 vectors_part(u32 number)
{
	switch (number) {
	case 2: return HEAD->ymm;
	case 5: return HEAD->kmask;
	case 6: return HEAD->zmm_high;
	default: return HEAD->zmm_more;
	}
}

/* ---- faults that lead nowhere ---- */

static void ud2(void)
{
	__asm__ volatile("ud2");
}

static void spin(void)
{
	for (;;)
		__builtin_ia32_pause();
}

static int astray(const struct sf_strike *f, struct sf_struck *s, struct sf_hit *h, struct sf_regs *r)
{
	switch (f->what) {
	case SF_X_IP:
		h->before = f->addr;
		/* A wild jump has to meet the program's own bytes: the window goes, its work is done.
		 * The injector has left its place, bytes and length here. */
		if (s->delta)
			put(s->at, s->bytes, s->delta);
		r->rip = h->after = changed(f, h->before, 0);
		return 0;
	case SF_X_CODE:
		/* The window goes too; the injector has left the instruction as the fault makes it. */
		if (!s->delta || put(s->at, s->bytes, s->delta))
			return 1;
		r->rip = f->addr;
		return 0;
	case SF_X_CRASH: r->rip = (u64)ud2; return 0;
	default: r->rip = (u64)spin; return 0;
	}
}

static u32 cpu(void)
{
	u64 limit;
	/* The kernel keeps CPU and node in the limit of this segment (vgetcpu). */
	__asm__ volatile("lsl %1, %0" : "=r"(limit) : "r"(0x7bull) : "cc");
	return (u32)limit & 0xfff;
}

static u64 tsc(void)
{
	u32 low, high;
	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
}

/* Whether this thread is whom the fault is bound to. */
static int concerned(const struct si_fault *f)
{
	if (f->who == SI_PROCESS)
		return f->pid == own_pid();
	return f->who == SI_ALL || f->tid == (u32)call2(NR_gettid, 0, 0);
}

/* The execution of a fault that is bound to somebody; 0: none that it strikes. */
static u64 own_count(struct si_fault *f)
{
	const struct sf_choice *c = &f->choice;
	u64 n = ++f->seen;
	return n >= c->first && n <= c->last && (n - c->first) % c->step == 0 ? n : 0;
}

/* Payloads of other threads take theirs from a counter at any time. */
static u64 exchange(u64 *counter, u64 to)
{
	return __atomic_exchange_n(counter, to, __ATOMIC_SEQ_CST);
}

/* All is undone: the counter is what it would be without. Of those who have taken from it since it stood at one, the first is on
 * its way in here. */
static void count_on(struct si_fault *f, u64 *counter)
{
	u64 passed = 1 - exchange(counter, f->left);
	if (passed && passed < f->left) {
		f->late = 1;
		__atomic_fetch_sub(counter, passed, __ATOMIC_SEQ_CST);
	} else if (passed) {
		*counter = NEVER; /* it is the next to be struck, and sets the counter */
	}
}

/* Something waits to be undone. The thread that it is for comes to another execution, so that one never
 * came to its end: what is left of it in memory is put right, registers are another execution's by now.
 * 1: the execution that is about to happen is one more on the way to the next strike. */
static int while_struck(struct si_fault *f, struct sf_hit *h, u64 *counter, u64 *after, struct sf_regs *r)
{
	int own = f->struck_tid == (u32)call2(NR_gettid, 0, 0);
	if (own) {
		struct si_site *s = SITE(f->struck_site);
		*after = 1;
		if (s->strike.what == SF_X_MEM || s->strike.what == SF_X_FSBASE)
			finish(&s->strike, &s->struck, h, r);
	}
	if (f->who != SI_ALL)
		return 0;
	u64 passed = 1 - exchange(counter, 1);
	if (passed >= f->left)
		return 0;
	f->left -= passed;
	if (own)
		count_on(f, counter);
	return 1;
}

/* 1: it struck. */
static int count_phase(struct si_site *s, struct sf_regs *r)
{
	struct si_fault *f = FAULT(s->fault);
	struct sf_hit *h = HIT(s->fault);
	u64 *counter = COUNTER(s->fault), *after = AFTER(s->fault), n;
	int once = s->strike.once, struck = 0;
	if (*after && f->late) {
		f->late = 0;
		return 0;
	}
	if (!concerned(f) || (!*after && while_struck(f, h, counter, after, r)))
		return 0;
	n = f->who == SI_ALL ? reached(&f->choice, &f->next, counter) : own_count(f);
	if (!n)
		return 0;
	struct sf_hit now = { .n = n, .tsc = tsc(), .cpu = cpu(), .addr = s->strike.addr, .pid = own_pid() };
	if (once && !*after)
		h->missed++; /* another thread's is under way, and there is room for one */
	else
		struck = strike(&f->choice, &s->strike, &s->struck, h, &now, r);
	if (struck && once) {
		f->struck_tid = (u32)call2(NR_gettid, 0, 0);
		f->struck_site = (u32)(s - SITE(0));
		*after = 0;
	}
	if (!*after && f->who == SI_ALL)
		f->left = exchange(counter, 1);
	return struck;
}

/* Behind the instruction: what is undone is the execution that was struck, and no other. */
static void finish_phase(struct si_site *s, struct sf_regs *r)
{
	struct si_fault *f = FAULT(s->fault);
	if (*AFTER(s->fault) || f->struck_tid != (u32)call2(NR_gettid, 0, 0))
		return;
	*AFTER(s->fault) = 1;
	if (f->who == SI_ALL)
		count_on(f, COUNTER(s->fault));
	finish(&s->strike, &s->struck, HIT(s->fault), r);
}

u64 si_strike(struct sf_regs *r, u64 desc, u64 word)
{
	struct si_site *s = SITE(desc & 0xffff);
	u64 sp = r->rsp;
	if (desc >> 17 & 1)
		r->eflags = word;
	else
		r->rcx = word;
	r->rip += PAYLOAD_REST + s->beside;
	if (desc >> 16 & 1) {
		finish_phase(s, r);
	} else if (count_phase(s, r) && s->beside) {
		/* The copy, which takes the stack pointer back from this word. */
		*AFTER(s->fault) = s->struck.old + (u64)(s64)s->moves;
		r->rip -= s->beside;
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
