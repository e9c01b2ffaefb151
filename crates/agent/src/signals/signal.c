/* Signals: the kernel speaks to the agent, the agent speaks to the program.
 *
 * Synchronous faults are events: replicas compare them and either all take the signal or
 * the one that faulted alone loses the vote. Asynchronous signals reach the leader only;
 * it notes them and attaches them to the result of an event, so every replica runs the
 * handler at the same log position, on a frame that this file builds as the kernel would
 * (arch/x86 rt_sigframe, see sigreturn(2)).
 *
 * What the kernel sees on the leader is what the program asked for, except that handlers
 * and fatal defaults lead to sf_signal_entry: signals the program blocks stay pending in
 * the kernel (so sigpending, sigtimedwait and signalfd work), and ignored ones are ignored
 * there (so they interrupt nothing).
 *
 * The queue of signals is the kernel's, with its order, its coalescing and its limit. The
 * leader holds one signal in its hand: from the moment the kernel hands it over until an
 * event takes it, every signal with a handler is blocked in the kernel.
 *
 *   kernel ──sf_on_signal──► hand ──sf_signal_attach──► result ──sf_deliver──► frame, in all
 *      ▲                      │ blocked meanwhile: give_back
 *      └──────────────────────┘
 *
 * A program that computes on without an event is brought to one: the launcher has all replicas
 * pause where they are, and come to where one of them stands (align.c, alignment.rs).
 *
 * Not covered: replicas that do not come to one place in time (docs/reference/limits-run.md).
 */
#include "agent.h"
#include "layout/frame.h"
#include <asm/errno.h>

#define BIT(s) (1ull << ((s) - 1))
enum {
	SIGILL = 4,
	SIGTRAP = 5,
	SIGBUS = 7,
	SIGFPE = 8,
	SIGKILL = 9,
	SIGSEGV = 11,
	SIGCHLD = 17,
	SIGCONT = 18,
	SIGSTOP = 19,
	SIGTSTP = 20,
	SIGTTIN = 21,
	SIGTTOU = 22,
	SIGURG = 23,
	SIGWINCH = 28,
	SIGSYS = 31
};
#define FAULTS (BIT(SIGILL) | BIT(SIGTRAP) | BIT(SIGBUS) | BIT(SIGFPE) | BIT(SIGSEGV) | BIT(SIGSYS))
#define UNBLOCKABLE (BIT(SIGKILL) | BIT(SIGSTOP))
/* The launcher's own word to a replica is SIGSYS from its process, which has no number where followers
 * live: no program waits for it. */
#define IS_NUDGE(s, i) ((s) == SIGSYS && (i)->code == 0 && (me.slot != 0 || (s32)(i)->words[0] == sf_boot.launcher_pid))

#define SA_SIGINFO 4ull
#define SA_ONSTACK 0x08000000ull
#define SA_RESTART 0x10000000ull
#define SA_NODEFER 0x40000000ull
#define SA_RESETHAND 0x80000000ull
#define SA_RESTORER 0x04000000ull
/* What the kernel keeps of a program's flags: the rest reads as 0, by which programs find out what there is (sigaction(2)). */
#define SA_KNOWN (1 | 2 | SA_SIGINFO | 0x800 | SA_RESTORER | SA_ONSTACK | SA_RESTART | SA_NODEFER | SA_RESETHAND)
#define SS_ONSTACK 1u
#define SS_DISABLE 2u
#define SS_AUTODISARM (1u << 31)
#define SIG_DFL 0
#define SIG_IGN 1
#define SYS_SECCOMP 1
/* The kernel tells a step from the debug status register, and a hypervisor under load may lose what is in there (some
 * steps in a million here): it calls such a step a TRAP_BRKPT, its word for int1. An int3 has SI_KERNEL. */
#define TRAP_BRKPT 1
#define TRAP_TRACE 2
#define SI_KERNEL 0x80
#define SI_QUEUE (-1)
#define SI_TIMER (-2)
#define SIGRTMIN 32
#define SYS_USER_DISPATCH 2

#define GENERAL_PROTECTION 13

#define UC_FP_XSTATE 1u
#define UC_SIGCONTEXT_SS 2u
#define UC_STRICT_RESTORE_SS 4u
#define FP_MAGIC1 0x46505853u
#define FP_MAGIC2 0x46505845u

static u64 xmask;    /* state components the kernel saves in frames */
static u32 xsize;    /* bytes of the standard format for them */
static u32 mxcsr_mask; /* bits that MXCSR may have set: saved beside it */
static struct {
	u32 at, bytes, aligned;
} component[64];

static void load_features(void)
{
	u32 lo, hi, a = 0xd, b, c = 0, d;
	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	xmask = (u64)hi << 32 | lo;
	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	xsize = b; /* for what XCR0 enables: Intel SDM vol. 1, 13.2 */
	static u8 fx[512] __attribute__((aligned(16)));
	__asm__ volatile("fxsave64 (%0)" ::"r"(fx) : "memory");
	mxcsr_mask = *(u32 *)(fx + 28);
	/* Tile data is saved by the kernel only for those who asked for it. */
	xmask &= ~(3ull << 17);
	for (u32 i = 2; i < 63; i++) {
		if (!(xmask >> i & 1))
			continue;
		a = 0xd, c = i;
		__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
		component[i].at = b;
		component[i].bytes = a;
		component[i].aligned = c >> 1 & 1;
	}
}

/* Whether a component behind x87 and SSE holds its initial value, which is zero (Intel SDM
 * vol. 1, 13.6). */
static int initial(const u8 *at, u32 bytes)
{
	u64 any = 0;
	for (u32 i = 0; i < bytes; i += 8)
		any |= *(const u64 *)(at + i);
	return any == 0;
}

/* What the x87 unit knows of its last instruction, in the image of fxsave: AMD's processors keep it over a switch of tasks only while
 * an exception is pending (bit 7 of the status word). Stored by the program itself: crates/patch/src/environment.rs. */
static void forget_pointers(u8 *at)
{
	if (!(*(const u16 *)(at + 2) & 0x80))
		memset(at + 6, 0, 18);
}

/* Hardware leaves out components it considers initial, and whether it does is timing: write
 * the initial values, and call those present that have others, so that frames of all replicas
 * hold the same bytes. Initial ones must not be called present: loaded from memory, zeros in the
 * upper halves of ymm0 to ymm15 count as in use from then on, and each change between SSE and
 * AVX instructions costs Intel's cores some 70 cycles until a vzeroupper. */
void sf_fp_normalise(u8 *at)
{
	u64 *bv = (u64 *)(at + 512);
	if (!(*bv & 1)) {
		memset(at, 0, 24);
		*(u16 *)at = 0x37f;
		memset(at + 32, 0, 128);
	}
	forget_pointers(at);
	if (!(*bv & 2))
		memset(at + 160, 0, 256);
	u64 present = 3;
	for (u32 i = 2; i < 63; i++) {
		if (!(xmask >> i & 1))
			continue;
		u8 *part = at + component[i].at;
		if (!(*bv >> i & 1))
			memset(part, 0, component[i].bytes);
		else if (!initial(part, component[i].bytes))
			present |= 1ull << i;
	}
	*bv = present;
	memset(at + 520, 0, 56);
}

struct completion {
	u8 *at;
	u64 rfbm;
	int compact;
};

static void complete(void *v)
{
	struct completion *c = v;
	u64 *bv = (u64 *)(c->at + 512), *layout = (u64 *)(c->at + 520);
	u64 missing = c->rfbm & xmask & ~*bv;
	u32 next = 576;
	if (missing & 1) {
		memset(c->at, 0, 24);
		*(u16 *)c->at = 0x37f;
		memset(c->at + 32, 0, 128);
	}
	if (c->rfbm & 1)
		forget_pointers(c->at);
	if (missing & 2) {
		memset(c->at + 160, 0, 256);
		if (c->compact) {
			*(u32 *)(c->at + 24) = 0x1f80;
			*(u32 *)(c->at + 28) = mxcsr_mask;
		}
	}
	for (u32 i = 2; i < 63; i++) {
		u32 at = component[i].at;
		if (c->compact) {
			if (!(*layout >> i & 1))
				continue;
			if (component[i].aligned)
				next = (next + 63) & ~63u;
			at = next;
			next += component[i].bytes;
		}
		if (missing >> i & 1)
			memset(c->at + at, 0, component[i].bytes);
		else if ((c->rfbm & *bv) >> i & 1 && initial(c->at + at, component[i].bytes))
			*bv &= ~(1ull << i);
	}
	*bv |= missing & 3;
}

/* The program has saved vector state itself: write the initial values that the hardware left
 * out, and say of each component whether it has others (crates/patch/src/save.rs). */
void sf_fp_complete(u64 at, u64 rfbm, int compact)
{
	struct completion c = { (u8 *)at, rfbm, compact };
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		complete(&c);
	}
	me.guard = NULL;
}

u32 sf_fp_bytes(void)
{
	return xsize;
}

void sf_fp_save(void *at) /* 64-byte aligned, header zeroed by this */
{
	memset(at, 0, xsize);
	__asm__ volatile("xsave64 (%0)" ::"r"(at), "a"((u32)xmask), "d"((u32)(xmask >> 32)) : "memory");
	sf_fp_normalise(at);
}

void sf_fp_load(const void *at)
{
	__asm__ volatile("xrstor64 (%0)" ::"r"(at), "a"((u32)xmask), "d"((u32)(xmask >> 32)) : "memory");
}

/* ---- what the kernel is told ---- */

static int default_ignores(int s)
{
	return s == SIGCHLD || s == SIGCONT || s == SIGURG || s == SIGWINCH;
}

static int default_stops(int s)
{
	return s == SIGTSTP || s == SIGTTIN || s == SIGTTOU;
}

/* Restarting is left to the kernel, which alone knows what it can restart (signal(7)): a call
 * that it has wound back to its instruction may be made again, one that ended with EINTR not. */
static s64 tell_action(int s, const struct sf_action *p)
{
	struct sf_action k = { (u64)sf_signal_entry, SA_SIGINFO | SA_ONSTACK | SA_RESTORER | SA_NODEFER | SA_RESTART, (u64)sf_restorer,
			       ~FAULTS };
	/* A follower takes the launcher's word from anybody: one upon the other, such words would fill the stack of handlers. */
	if (s == SIGSYS)
		k.mask |= BIT(SIGSYS);
	if (s == SIGKILL || s == SIGSTOP)
		return 0;
	if (!(BIT(s) & FAULTS)) {
		if (me.slot != 0)
			return 0;
		if (p->handler == SIG_IGN || (p->handler == SIG_DFL && (default_ignores(s) || default_stops(s))))
			k = (struct sf_action){ p->handler, p->flags & 3 /* NOCLDSTOP, NOCLDWAIT */, 0, 0 };
		else
			k.flags |= p->flags & 3;
	}
	return sys4(NR_rt_sigaction, s, &k, 0, 8);
}

void sf_kernel_action(int s)
{
	tell_action(s, &app.action[s]);
}

/* Signals that lead to a handler of the program. */
static u64 handled(void)
{
	u64 m = 0;
	for (int s = 1; s <= SF_SIGNALS; s++)
		if (app.action[s].handler > SIG_IGN)
			m |= BIT(s);
	return m;
}

/* What the program blocks: what each of its threads does. */
static u64 blocked(u64 mask)
{
	return unlikely(app.threads > 1) ? sf_threads_block(mask) : mask;
}

/* The leader blocks what the program blocks, and while it has a signal in its hand every
 * other with a handler; followers block all but faults. */
static u64 mask_now(void)
{
	u64 m = me.slot == 0 ? blocked(app.mask) : ~0ull;
	for (u32 i = 0; i < me.pending_n; i++)
		if (!(BIT(me.pending[i].signo) & FAULTS & app.mask))
			m |= handled();
	if (unlikely(app.threads > 1) && me.slot == 0)
		m |= sf_timers_block();
	return m & ~(FAULTS | UNBLOCKABLE);
}

static u64 mask_set;

static s64 set_mask(u64 m)
{
	mask_set = m;
	return sys4(NR_rt_sigprocmask, 2 /* SIG_SETMASK */, &m, 0, 8);
}

/* Another thread may block less than it did when it ran. */
int sf_mask_is_old(void)
{
	return app.threads > 1 && mask_set != mask_now();
}

static void show_hand(void);

void sf_kernel_mask(void)
{
	show_hand();
	if (me.fault_frame) { /* in a handler of the kernel's: its return sets the mask */
		((struct rt_frame *)me.fault_frame)->uc.sigmask = mask_now();
		return;
	}
	u32 had;
	do {
		had = me.pending_n;
		set_mask(mask_now());
	} while (unlikely(me.pending_n != had)); /* taken before the mask was in force */
}

/* In a handler in which the launcher may have to call this replica again. */
void sf_signals_hear(void)
{
	const u64 m = BIT(SIGSYS);
	sys4(NR_rt_sigprocmask, 1 /* SIG_UNBLOCK */, &m, 0, 8);
}

/* No signal of the program's interrupts what follows: a pause, in which its state changes. */
void sf_signals_hold(void)
{
	if (me.slot == 0)
		set_mask(~(FAULTS | UNBLOCKABLE));
}

/* Not even the launcher's word does. A fault of this replica's own still is one. */
void sf_signals_hold_all(void)
{
	set_mask(~(UNBLOCKABLE | (FAULTS & ~BIT(SIGSYS))));
}

static void open_defaults(void);

void sf_signals_release(void)
{
	if (me.fault_frame)
		open_defaults();
	else
		sf_kernel_mask();
}

/* A negative errno where the kernel refuses what no kernel refuses: a filter does. */
s64 sf_signals_init(void)
{
	load_features();
	app.mask = sf_boot.mask & ~UNBLOCKABLE;
	G->held_n = G->faults_n = G->threads = G->counts = 0;
	G->settled = 0; /* of the program before exec */
	G->attached_to = 0;
	struct {
		u64 sp;
		u32 flags, pad;
		u64 size;
	} ss = { (u64)sf_alt_stack, 0, 0, ALT_STACK_BYTES };
	u64 alt[7] = { 131, (u64)&ss, 0, 0, 0, 0, 0 };
	s64 r = sf_raw(alt);
	app.alt_flags = SS_DISABLE;
	for (int s = 1; s <= SF_SIGNALS && r >= 0; s++) {
		u64 get[7] = { 13, (u64)s, 0, (u64)&app.action[s], 8, 0, 0 };
		r = sf_raw(get);
	}
	return r;
}

/* In each replica, after it knows which one it is and has its backstop. Signals stay blocked
 * until it becomes the program (sf_kernel_mask, sf_signals_release). */
s64 sf_signals_start(void)
{
	s64 r = 0;
	for (int s = 1; s <= SF_SIGNALS && r >= 0; s++)
		r = tell_action(s, &app.action[s]);
	return r < 0 ? r : set_mask(~(FAULTS | UNBLOCKABLE));
}

/* Before another program takes this one's place: what it ignores stays ignored (execve(2)), and of
 * synchronous signals only the agent knows. */
void sf_signals_bequeath(void)
{
	for (int s = 1; s <= SF_SIGNALS; s++)
		if ((BIT(s) & FAULTS) && app.action[s].handler == SIG_IGN)
			sys4(NR_rt_sigaction, s, &(struct sf_action){ .handler = SIG_IGN }, 0, 8);
}

/* What takes its place has no agent: the kernel's mask is the program's. */
void sf_signals_let_go(void)
{
	set_mask(app.mask & ~UNBLOCKABLE);
}

/* It did not. */
void sf_signals_reclaim(void)
{
	for (int s = 1; s <= SF_SIGNALS; s++)
		if (BIT(s) & FAULTS)
			sf_kernel_action(s);
	sf_signals_release();
}

/* ---- state the program asked for, equal in all replicas ---- */

static int user(void (*copy)(void *), void *arg)
{
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		copy(arg);
		me.guard = NULL;
		return 0;
	}
	me.guard = NULL;
	return -EFAULT;
}
struct span {
	void *to;
	const void *from;
	u64 n;
};
static void copy_span(void *v)
{
	struct span *s = v;
	memcpy(s->to, s->from, s->n);
}
static int user_get(void *to, u64 from, u64 n)
{
	struct span s = { to, (void *)from, n };
	return user(copy_span, &s);
}
int sf_user_put(u64 to, const void *from, u64 n)
{
	struct span s = { (void *)to, from, n };
	return user(copy_span, &s);
}

s64 sf_sigaction(const u64 a[6])
{
	s32 s = (s32)a[0];
	struct sf_action n, old;
	if (s < 1 || s > SF_SIGNALS || a[3] != 8 || (a[1] && (s == SIGKILL || s == SIGSTOP)))
		return -EINVAL;
	if (a[1] && user_get(&n, a[1], sizeof n))
		return -EFAULT;
	old = app.action[s];
	if (a[1]) {
		n.mask &= ~UNBLOCKABLE;
		n.flags &= SA_KNOWN;
		tell_action(s, &n); /* first, so that what stops or ignores is never taken in hand */
		app.action[s] = n;
	}
	if (a[2] && sf_user_put(a[2], &old, sizeof old))
		return -EFAULT;
	return 0;
}

s64 sf_sigprocmask(const u64 a[6])
{
	u64 n, old = app.mask;
	if (a[3] != 8)
		return -EINVAL;
	if (a[1]) {
		if (user_get(&n, a[1], 8))
			return -EFAULT;
		n &= ~UNBLOCKABLE;
		switch ((s32)a[0]) {
		case 0: app.mask |= n; break;
		case 1: app.mask &= ~n; break;
		case 2: app.mask = n; break;
		default: return -EINVAL;
		}
		if (app.mask != old && me.slot == 0)
			sf_kernel_mask();
	}
	if (a[2] && sf_user_put(a[2], &old, 8))
		return -EFAULT;
	return 0;
}

struct stack_t {
	u64 sp;
	u32 flags, pad;
	u64 size;
};

static int on_altstack(u64 sp)
{
	return app.alt_size && !(app.alt_flags & (SS_DISABLE | SS_AUTODISARM)) && sp > app.alt_sp && sp - app.alt_sp <= app.alt_size;
}

s64 sf_sigaltstack(const u64 a[6])
{
	struct stack_t n, old = { app.alt_sp, app.alt_flags, 0, app.alt_size };
	if (on_altstack(me.regs->rsp))
		old.flags |= SS_ONSTACK;
	if (a[0]) {
		if (user_get(&n, a[0], sizeof n))
			return -EFAULT;
		u32 mode = n.flags & ~SS_AUTODISARM;
		if (on_altstack(me.regs->rsp))
			return -EPERM;
		if (mode != SS_DISABLE && mode != SS_ONSTACK && mode != 0)
			return -EINVAL;
		if (mode == SS_DISABLE) {
			app.alt_sp = app.alt_size = 0;
			app.alt_flags = n.flags;
		} else {
			if (n.size < 2048)
				return -ENOMEM;
			app.alt_sp = n.sp;
			app.alt_size = n.size;
			app.alt_flags = n.flags & SS_AUTODISARM;
		}
	}
	if (a[1] && sf_user_put(a[1], &old, sizeof old))
		return -EFAULT;
	return 0;
}

/* Calls that wait with a mask of their own: the handler's frame restores the old one. */
void sf_before_wait(const struct sf_call *c, u32 nr, const u64 a[6])
{
	u64 at = 0, m;
	switch (c->handler) {
	case SF_H_sigsuspend: at = a[0]; break;
	case SF_H_poll:
		if (nr == NR_ppoll)
			at = a[3];
		else if (nr == NR_epoll_pwait || nr == NR_epoll_pwait2)
			at = a[4];
		else if (nr == NR_pselect6 && a[5] && user_get(&at, a[5], 8))
			at = 0;
		break;
	default: return;
	}
	if (!at || user_get(&m, at, 8))
		return;
	app.wait_mask = m & ~UNBLOCKABLE;
	app.has_wait_mask = 1;
}

void sf_after_wait(void)
{
	app.wait_mask = 0;
	app.has_wait_mask = 0;
}

/* ---- asynchronous signals, leader only ---- */

/* A program with stores that have not reached their file ends at an event, where they can be
 * agreed on (shared.c), and so does one that shares memory with others; any other ends at once. */
static int ends_at_event(int s)
{
	return (app.map_stores || app.domain) && app.action[s].handler == SIG_DFL && !default_ignores(s) && !default_stops(s);
}

NORETURN static void die_of(int s)
{
	struct sf_action dfl = { 0, 0, 0, 0 };
	u64 none = ~BIT(s);
	if (me.slot == 0 && !load(&G->end_inv) && !app.spawn.active) {
		G->end_value = s;
		sf_say_end(SF_E_SIGNALED);
	}
	if (me.slot != 0 && app.spawn.active)
		sf_spawn_dies();
	if (me.slot != 0 && !(G->options & SF_O_PAIR))
		for (;;)
			sys1(NR_exit_group, 128 + s);
	sys4(NR_rt_sigaction, s, &dfl, 0, 8);
	sys4(NR_rt_sigprocmask, 2, &none, 0, 8);
	for (;;) {
		s64 pid = sys0(NR_getpid);
		sys3(NR_tgkill, pid, pid, s);
		sys1(NR_exit_group, 128 + s);
	}
}

#define STOPS_NOW(s) (default_stops(s) && app.action[s].handler == SIG_DFL)

/* Whether the program stops at once, if it is sent this one. */
int sf_signal_stops(u32 s)
{
	return s == SIGSTOP || (s >= SIGTSTP && s <= SIGTTOU && STOPS_NOW((int)s) && !(blocked(app.mask) & BIT(s)));
}

static void block_all(u64 *old)
{
	u64 all = ~(FAULTS | UNBLOCKABLE);
	sys4(NR_rt_sigprocmask, 2, &all, old, 8);
}

/* How many signals would be delivered if an event came. */
static void show_hand(void)
{
	u32 n = 0;
	if (me.slot != 0)
		return;
	for (u32 i = 0; i < me.pending_n; i++) {
		const int s = me.pending[i].signo;
		n += !(BIT(s) & blocked(app.mask)) && (app.action[s].handler > SIG_IGN || (app.domain && ends_at_event(s)));
	}
	store(&G->hand, n);
}

/* The same for a leader that comes after this one. */
static void note_hand(void)
{
	if (me.slot != 0)
		return;
	memcpy(G->held, me.pending, me.pending_n * sizeof *me.pending);
	store(&G->held_n, me.pending_n);
}

static void hold_signal(const struct sf_siginfo *i)
{
	ASSERT(me.pending_n < sizeof me.pending / sizeof *me.pending);
	me.pending[me.pending_n] = *i;
	barrier();
	me.pending_n++;
	note_hand();
	show_hand();
}

static int holds_signal(int s)
{
	for (u32 i = 0; i < me.pending_n; i++)
		if (me.pending[i].signo == s)
			return 1;
	return 0;
}

static void hold_again(const u64 *words)
{
	struct sf_siginfo i;
	memcpy(&i, words, sizeof i);
	if (i.signo < 1 || i.signo > SF_SIGNALS || me.pending_n == SF_HAND_MAX || (i.signo < SIGRTMIN && holds_signal(i.signo)))
		return;
	hold_signal(&i);
}

/* A leader stands where a winner stands: what the last one had taken, or had attached to a result that nobody has
 * followed, is still to be delivered. */
void sf_signals_receive(void)
{
	u64 old, held[SF_HAND_MAX][SF_SIGINFO_WORDS];
	const u32 n = me.fresh && G->held_n <= SF_HAND_MAX ? G->held_n : 0;
	if (me.slot != 0)
		return;
	block_all(&old);
	memcpy(held, G->held, sizeof held);
	if (G->attached_to >= me.next)
		hold_again(G->attached);
	G->attached_to = 0;
	for (u32 i = 0; i < n; i++)
		hold_again(held[i]);
	set_mask(old);
}

static void drop_signal(u32 i)
{
	me.pending_n--;
	for (; i < me.pending_n; i++)
		me.pending[i] = me.pending[i + 1];
	note_hand();
	show_hand();
}

/* The program has blocked what is in the hand: back to where blocked signals wait. The kernel
 * lets a process send itself any siginfo (rt_sigqueueinfo(2)), and puts it behind those of
 * the same number that came later: take these out and put them back behind it. */
static void give_back(u32 i)
{
	static struct sf_siginfo later[32];
	static const s64 now[2];
	u64 old;
	u32 n = 0;
	block_all(&old);
	struct sf_siginfo first = me.pending[i];
	u64 set = BIT(first.signo);
	s64 pid = sys0(NR_getpid);
	drop_signal(i);
	if (first.signo >= SIGRTMIN)
		while (n < sizeof later / sizeof *later && sys4(NR_rt_sigtimedwait, &set, &later[n], now, 8) == first.signo)
			n++;
	sys3(NR_rt_sigqueueinfo, pid, first.signo, &first);
	for (u32 k = 0; k < n; k++)
		sys3(NR_rt_sigqueueinfo, pid, first.signo, &later[k]);
	set_mask(old);
}

/* Does what is in the hand go to a handler now? What the program has blocked, ignored or set
 * to its default since the kernel handed it over is dealt with here. */
static COLD int settle(void)
{
	u64 mask = blocked(app.has_wait_mask ? app.wait_mask : app.mask);
	int ready = 0;
	for (u32 i = 0; i < me.pending_n;) {
		int s = me.pending[i].signo;
		u64 h = app.action[s].handler;
		if (mask & BIT(s)) {
			if (BIT(s) & FAULTS)
				i++; /* never blocked in the kernel: waits here */
			else
				give_back(i);
		} else if (h > SIG_IGN || ends_at_event(s)) {
			ready = 1;
			i++;
		} else {
			u64 old;
			block_all(&old);
			drop_signal(i);
			set_mask(old);
			if (STOPS_NOW(s))
				sys2(NR_kill, sys0(NR_getpid), SIGSTOP);
			else if (h == SIG_DFL && !default_ignores(s))
				die_of(s);
		}
	}
	if (!ready)
		sf_kernel_mask();
	return ready;
}

int sf_signal_pending(void)
{
	if (likely(!load(&me.pending_n)))
		return 0;
	if (unlikely(app.parts.quiet))
		return 0;
	return settle();
}

/* Leader: does any signal wait, here or in the kernel behind the program's mask? */
int sf_signals_wait(void)
{
	u64 set = 0;
	if (me.pending_n)
		return 1;
	sys2(NR_rt_sigpending, &set, 8);
	return set != 0;
}

static u32 first(void)
{
	u64 mask = blocked(app.has_wait_mask ? app.wait_mask : app.mask);
	for (u32 i = 0; i < me.pending_n; i++) {
		int s = me.pending[i].signo;
		if (!(mask & BIT(s)) && (app.action[s].handler > SIG_IGN || ends_at_event(s)))
			return i;
	}
	ASSERT(0);
	return 0;
}

/* A call has ended with `ret`, SF_NOT_MADE or -EINTR: what becomes of it? */
enum sf_interrupt sf_interrupted(s64 ret)
{
	/* Before the call was made its mask was not in force. */
	int unmade = ret == SF_NOT_MADE && !me.rewound;
	if (unmade)
		sf_after_wait();
	if (!sf_signal_pending())
		return SF_I_NOTHING;
	if (unmade)
		return SF_I_AGAIN;
	if (sf_signal_passes()) {
		sf_after_wait();
		return SF_I_AGAIN;
	}
	return ret == SF_NOT_MADE && sf_signal_restarts() ? SF_I_AGAIN : SF_I_ENDS;
}

/* Does the running thread block what comes next? Another one takes it then (sf_thread_diverts), and this one's call goes on. Parts
 * of a call end with what has moved (pair/parts.c). */
int sf_signal_passes(void)
{
	const u64 mask = app.has_wait_mask ? app.wait_mask : app.mask;
	return unlikely(app.threads > 1) && app.current != SF_NOBODY && (mask & ~FAULTS & BIT(me.pending[first()].signo)) &&
	       !(app.parts.stage && app.done_of_call);
}

/* Does the handler of what comes next let interrupted calls go on? */
int sf_signal_restarts(void)
{
	return (app.action[me.pending[first()].signo].flags & SA_RESTART) != 0;
}

void sf_signal_attach(struct sf_result *r, int restart)
{
	u64 old, set = 0;
	block_all(&old);
	u32 i = first();
	int s = me.pending[i].signo;
	const struct sf_action *act = &app.action[s];
	u64 mask = blocked((app.has_wait_mask ? app.wait_mask : app.mask) | act->mask | (act->flags & SA_NODEFER ? 0 : BIT(s)));
	while (r->out_len & 7)
		sf_result_bytes(r, "", 1);
	r->aux = r->out_off + r->out_len;
	sf_result_bytes(r, &me.pending[i], sizeof me.pending[i]);
	r->flags |= SF_R_SIGNAL | (restart ? SF_R_RESTART : 0);
	G->attached_to = 0;
	barrier();
	memcpy(G->attached, &me.pending[i], sizeof G->attached);
	store(&G->attached_to, ~r->seq_inv);
	drop_signal(i);
	me.fatal = G->dying = 0;
	/* As the kernel does, give every signal its frame that the handler's mask lets through. */
	sys2(NR_rt_sigpending, &set, 8);
	for (u32 k = 0; k < me.pending_n; k++)
		set |= BIT(me.pending[k].signo);
	if (set & ~mask)
		r->flags |= SF_R_MORE;
	set_mask(old);
}

/* The launcher passes on what was sent to it, in the name of who sent it: as SI_QUEUE, the one
 * code that the kernel lets it sign with another's pid, with the true code beside errno. */
#define FORWARDED 0x5346

static void restore_sender(struct sf_siginfo *i)
{
	if (i->code == SI_QUEUE && (u32)i->err >> 16 == FORWARDED) {
		i->code = (int16_t)(u16)i->err;
		i->err = 0;
	}
	sf_kernel_siginfo(i);
}

/* A call has stored a siginfo for the program. */
void sf_signal_taken(u64 at)
{
	struct sf_siginfo i;
	if (at && user_get(&i, at, sizeof i) == 0) {
		restore_sender(&i);
		sf_user_put(at, &i, sizeof i);
	}
}

/* struct signalfd_siginfo, as far as senders are told (signalfd(2)). */
struct read_info {
	u32 signo;
	s32 err, code;
	u32 pid, uid;
	s32 fd;
	u32 timer, rest[25];
};
_Static_assert(sizeof(struct read_info) == SF_READ_INFO, "signalfd(2)");

static int is_signalfd(u64 fd)
{
	static const char name[] = "anon_inode:[signalfd]";
	char to[sizeof name];
	return sf_fd_name(fd, to, sizeof to) == sizeof name - 1 && memcmp(to, name, sizeof name - 1) == 0;
}

static int as_it_was_sent(struct read_info *i)
{
	struct sf_siginfo s = { .signo = (s32)i->signo, .err = i->err, .code = i->code, .words = { (u64)i->uid << 32 | i->pid } };
	if (s.code == SI_TIMER)
		s.words[0] = i->timer;
	const struct sf_siginfo before = s;
	restore_sender(&s);
	if (memcmp(&s, &before, sizeof s) == 0)
		return 0;
	i->err = s.err;
	i->code = s.code;
	if (s.code == SI_TIMER)
		i->timer = (u32)s.words[0];
	else
		i->pid = (u32)s.words[0];
	return 1;
}

/* The leader has read what may be signals. Anything else does not begin with the number of one, or is as it was sent. */
void sf_signals_read(u64 fd, u64 at, u64 bytes)
{
	struct read_info i;
	int known = 0;
	for (; bytes >= sizeof i; at += sizeof i, bytes -= sizeof i) {
		if (sf_user_bytes(&i, at, sizeof i) < 0 || i.signo < 1 || i.signo > SF_SIGNALS)
			return;
		if (!as_it_was_sent(&i))
			continue;
		if (!known && !is_signalfd(fd))
			return;
		known = 1;
		sf_user_put(at, &i, sizeof i);
	}
}

/* Fault signals that others sent are never blocked in the kernel: those that the program
 * blocks are pending here. `at` holds what the kernel says is pending. */
void sf_signals_held(u64 at)
{
	u64 m = app.threads ? sf_thread_now()->pending & app.mask : 0, set;
	for (u32 i = 0; i < me.pending_n; i++)
		m |= BIT(me.pending[i].signo) & FAULTS & app.mask;
	if (m && user_get(&set, at, sizeof set) == 0) {
		set |= m;
		sf_user_put(at, &set, sizeof set);
	}
}

/* The kernel hands over an asynchronous signal to the leader. */
static void take_signal(int s, const struct sf_siginfo *info, struct rt_frame *f)
{
	u64 h = app.action[s].handler;
	struct sf_siginfo own = *info;
	if (unlikely(s == SIGCHLD) && sf_ward_takes(&own))
		return;
	if (h == SIG_IGN || (h == SIG_DFL && default_ignores(s)))
		return;
	if (STOPS_NOW(s)) {
		sys2(NR_kill, sys0(NR_getpid), SIGSTOP);
		return;
	}
	if (h == SIG_DFL && !(BIT(s) & FAULTS & app.mask)) {
		/* The launcher repeats one for which no event has come; a timer goes on by itself. */
		if (!ends_at_event(s) || (me.fatal && !load(&G->dying)))
			die_of(s);
		if (me.fatal)
			return;
		me.fatal = 1;
		store(&G->dying_inv, ~(u32)s);
		store(&G->dying, (u32)s);
		__atomic_fetch_add(&G->launcher_bell, 1, __ATOMIC_SEQ_CST);
		sys3(NR_futex, &G->launcher_bell, 1, 1);
	}
	if (s < SIGRTMIN && holds_signal(s))
		return; /* a second one of the kind is one (signal(7)) */
	restore_sender(&own);
	hold_signal(&own);
	f->uc.sigmask |= handled() & ~(FAULTS | UNBLOCKABLE);
}

/* ---- frames ---- */

/* Build the kernel's frame on the program's stack and enter the handler. */
struct build {
	struct sf_regs *r;
	const struct sf_siginfo *i;
	u64 trapno, err, cr2;
	const void *fp;
	u64 sp;
};

/* What is interrupted inside the agent, or in an arena: a handler sees the program's own instruction, as bare, and whoever walks
 * the stack from there knows it (C++ destructors of a thread that is cancelled, Go's scheduler). A jump may stand there by now, so the
 * way back is the true one as long as nobody has changed what was shown. */
#define SHOWN 0x6e776f687320736bull
#define CALL_BYTES 2 /* syscall */

static void show(struct sigcontext *m)
{
	const int call = m->rip == (u64)sf_entry_syscall; /* it is made again behind the handler */
	const u64 is = call ? m->rcx - CALL_BYTES : sf_behind_site(m->rip);
	if (!is)
		return;
	m->reserved[0] = SHOWN;
	m->reserved[1] = is;
	m->reserved[2] = m->rip;
	m->rip = is;
}

static void go_back_to(struct sf_regs *r, const struct sigcontext *m)
{
	const u64 is = m->reserved[2];
	if (m->reserved[0] != SHOWN || m->reserved[1] != m->rip)
		return;
	if (is == (u64)sf_entry_syscall)
		r->rcx = m->rip + CALL_BYTES;
	else if (sf_behind_site(is) != m->rip)
		return;
	r->rip = is;
}

static void build_frame(void *v)
{
	struct build *b = v;
	struct sf_regs *r = b->r;
	const struct sf_action *act = &app.action[b->i->signo];
	u64 sp = r->rsp - 128;
	int alt = on_altstack(r->rsp);
	if ((act->flags & SA_ONSTACK) && app.alt_size && !(app.alt_flags & SS_DISABLE) && !alt) {
		sp = app.alt_sp + app.alt_size;
		alt = 1;
	}
	sp = (sp - (xsize + 4)) & ~63ull;
	u64 fp = sp;
	sp = ((sp - sizeof(struct rt_frame)) & ~15ull) - 8;
	b->sp = 0;
	if (alt && (sp <= app.alt_sp || sp - app.alt_sp > app.alt_size))
		return; /* the kernel does not run over the end of an alternate stack either */
	struct rt_frame *f = (void *)sp;
	memset(f, 0, sizeof *f);
	if (b->fp) {
		memcpy((void *)fp, b->fp, xsize);
		sf_fp_normalise((u8 *)fp);
	} else {
		sf_fp_save((void *)fp);
	}
	u32 *sw = (u32 *)(fp + 464); /* struct _fpx_sw_bytes */
	memset(sw, 0, 48);
	sw[0] = FP_MAGIC1;
	sw[1] = xsize + 4;
	*(u64 *)(sw + 2) = xmask;
	sw[4] = xsize;
	*(u32 *)(fp + xsize) = FP_MAGIC2;
	f->pretcode = act->restorer;
	f->uc.flags = UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS;
	f->uc.ss_sp = app.alt_sp;
	f->uc.ss_size = app.alt_size;
	f->uc.ss_flags = app.alt_flags;
	struct sigcontext *m = &f->uc.mc;
	sf_regs_to(m, r);
	show(m);
	m->cs = 0x33;
	m->ss = 0x2b;
	m->err = b->err;
	m->trapno = b->trapno;
	m->cr2 = b->cr2;
	m->oldmask = app.mask;
	m->fpstate = fp;
	f->uc.sigmask = app.mask;
	f->info = *b->i;
	b->sp = sp;
}

/* A fault's handler goes back to the middle of the program's code: the launcher plants nothing there (alignment.rs). */
static void note_fault(u64 at)
{
	for (u32 i = 0; i < G->faults_n && i < SF_FAULTS_MAX; i++)
		if (G->fault_at[i] == at)
			return;
	if (G->faults_n < SF_FAULTS_MAX)
		G->fault_at[G->faults_n] = at;
	if (G->faults_n <= SF_FAULTS_MAX)
		store(&G->faults_n, G->faults_n + 1);
}

static void deliver(struct build *b);

static enum sf_claim claim_end(struct sf_event *e, struct sf_regs *r, void *arg)
{
	(void)arg;
	me.own_event = 1;
	*e = (struct sf_event){ .seq = me.next, .nr = SIGSEGV, .kind = SF_K_FAULT, .lockstep = 1 };
	sf_hash_bytes(&e->bytes, r, sizeof *r);
	return SF_CLAIMED;
}

static const struct sf_result *act_end(struct sf_event *e, void *arg)
{
	(void)arg;
	return sf_result_flags(e, 0);
}

static const struct sf_step ends = { claim_end, NULL, act_end, NULL, NULL, 0 };

/* A handler's frame has no room, which ends the program if it is so in all replicas. One whose stack pointer was struck is
 * alone with it, and outvoted. */
NORETURN void sf_no_frame(struct sf_regs *r)
{
	struct sf_event e;
	me.doing = SF_D_ENTROPY;
	me.doing_desc = SF_DESC_NO_FRAME;
	sf_event(&e, r, &ends, NULL);
	sf_domain_leave();
	die_of(SIGSEGV);
}

/* After a fault all have compared their registers already, and stand in a handler of the kernel's. */
NORETURN static void no_frame(const struct build *b)
{
	if (me.fault_frame || sf_alone()) {
		sf_domain_leave();
		die_of(SIGSEGV);
	}
	sf_no_frame(b->r);
}

/* SIGSEGV by the kernel's own word, which kills if there is no handler, or it is blocked (force_sig). */
static void deliver_segv(const struct build *b)
{
	const struct sf_siginfo i = { .signo = SIGSEGV, .code = SI_KERNEL };
	struct build again = *b;
	again.i = &i;
	if (app.action[SIGSEGV].handler <= SIG_IGN || (app.mask & BIT(SIGSEGV)))
		no_frame(b);
	deliver(&again);
}

/* No jump goes to an address that is not canonical: the agent's own would fault. */
static int leads_nowhere(u64 rip)
{
	return (u64)((s64)(rip << 16) >> 16) != rip;
}

static void deliver(struct build *b)
{
	int s = b->i->signo;
	struct sf_action act = app.action[s];
	struct sf_regs *r = b->r;
	if (user(build_frame, b) || !b->sp) {
		/* No room for a frame: SIGSEGV in its place, which needs room as well. */
		if (s == SIGSEGV)
			no_frame(b);
		deliver_segv(b);
		return;
	}
	if (b->fp && me.slot == 0)
		note_fault(r->rip);
	if (app.alt_flags & SS_AUTODISARM) {
		app.alt_sp = app.alt_size = 0;
		app.alt_flags = SS_DISABLE;
	}
	u64 block = act.mask | (act.flags & SA_NODEFER ? 0 : BIT(s));
	app.mask |= block & ~UNBLOCKABLE;
	if (app.has_wait_mask)
		app.mask = (app.wait_mask | block) & ~UNBLOCKABLE;
	sf_after_wait();
	if (act.flags & SA_RESETHAND) {
		app.action[s].handler = SIG_DFL;
		sf_kernel_action(s);
	}
	if (me.slot == 0)
		sf_kernel_mask();
	struct rt_frame *f = (void *)b->sp;
	r->rdi = (u64)s;
	r->rsi = (u64)&f->info;
	r->rdx = (u64)&f->uc;
	r->rax = 0;
	r->rsp = b->sp;
	r->rip = act.handler;
	r->rcx = 0;
	r->eflags &= ~(0x400ull | 0x10000ull | 0x100ull); /* DF, RF, TF */
	__asm__ volatile("" ::: "memory");
	if (unlikely(leads_nowhere(r->rip))) {
		if (s == SIGSEGV)
			no_frame(b);
		deliver_segv(&(struct build){ .r = r, .trapno = GENERAL_PROTECTION });
	}
}

/* A fresh handler starts with initial vector state, as after the kernel's delivery. */
static void fp_initial(void)
{
	static u8 area[16384] __attribute__((aligned(64)));
	static u8 ready;
	if (!ready) {
		memset(area, 0, 576);
		*(u16 *)area = 0x37f;
		*(u32 *)(area + 24) = 0x1f80;
		ready = 1;
	}
	*(u64 *)(area + 512) = 3; /* x87 and SSE from the area, the rest initial */
	sf_fp_load(area);
}

NORETURN void sf_die(int s)
{
	die_of(s);
}

void sf_deliver(struct sf_regs *r, const struct sf_siginfo *i)
{
	if (unlikely(ends_at_event(i->signo)))
		sf_die_agreed(r, (u32)i->signo);
	if (unlikely(app.threads > 1) && !(BIT(i->signo) & FAULTS) && sf_thread_diverts(i))
		return;
	sf_kernel_delivered(i);
	if (app.action[i->signo].handler <= SIG_IGN)
		return;
	if (unlikely(app.parts.stage)) { /* it was about to go on with a call; the handler makes calls of its own */
		sf_parts_cut(&app.parts, r, app.done_of_call);
		app.done_of_call = 0;
	}
	struct build b = { .r = r, .i = i };
	deliver(&b);
	fp_initial();
}

static void read_frame(void *v)
{
	struct sf_regs *r = v;
	struct rt_frame *f = (void *)(r->rsp - 8);
	struct sigcontext *m = &f->uc.mc;
	u64 mask = f->uc.sigmask & ~UNBLOCKABLE;
	struct sf_regs n = { m->r15, m->r14, m->r13, m->r12, m->rbp, m->rbx,
			     m->r11, m->r10, m->r9,  m->r8,  m->rax, m->rcx,
			     m->rdx, m->rsi, m->rdi, m->rsp, m->rip, (r->eflags & ~0x50dd5ull) | (m->eflags & 0x50dd5ull) };
	if (m->fpstate) {
		static u8 area[16384] __attribute__((aligned(64)));
		memcpy(area, (void *)m->fpstate, xsize < sizeof area ? xsize : sizeof area);
		*(u64 *)(area + 512) &= xmask;
		memset(area + 520, 0, 56);
		sf_fp_load(area);
	}
	if (!on_altstack(n.rsp) || (f->uc.ss_flags & SS_AUTODISARM)) {
		app.alt_sp = f->uc.ss_sp;
		app.alt_size = f->uc.ss_size;
		app.alt_flags = f->uc.ss_flags & ~SS_ONSTACK;
	}
	app.mask = mask;
	go_back_to(&n, m);
	*r = n;
}

void sf_do_sigreturn(struct sf_regs *r)
{
	if (unlikely(user(read_frame, r) || leads_nowhere(r->rip))) {
		deliver_segv(&(struct build){ .r = r, .trapno = GENERAL_PROTECTION });
		fp_initial();
	}
	if (me.slot == 0)
		sf_kernel_mask();
}

u64 sf_frame_fp(u64 frame)
{
	return ((struct rt_frame *)frame)->uc.mc.fpstate;
}

/* ---- the kernel's entry ---- */

/* Entropy instructions that could not be patched: a breakpoint stands on those that are known,
 * and rdtsc and cpuid fault once code has appeared that was never searched (memory.c). */
static int on_entropy_trap(int s, const struct sf_siginfo *info, struct sigcontext *m)
{
	u64 at = m->rip, next = 0, desc = 0;
	if (s == SIGTRAP && info->code == SI_KERNEL) {
		at--;
		for (u32 i = 0; i < sf_traps.n; i++) {
			if (sf_traps.at[i].addr == at) {
				next = at + sf_traps.at[i].len;
				desc = sf_traps.at[i].desc;
			}
		}
	} else if (s == SIGSEGV && me.tsc_traps) {
		u8 code[3] = { 0, 0, 0 };
		if (user_get(code, at, 2) == 0 && code[0] == 0x0f && code[1] == 0x31)
			next = at + 2, desc = SF_I_RDTSC;
		else if (code[0] == 0x0f && code[1] == 0xa2)
			next = at + 2, desc = SF_I_CPUID;
		else if (user_get(code, at, 3) == 0 && code[0] == 0x0f && code[1] == 0x01 && code[2] == 0xf9)
			next = at + 3, desc = SF_I_RDTSCP;
	}
	if (!next)
		return 0;
	G->slot[me.slot].slow++;
	if (desc == SF_I_XBEGIN) {
		m->rax = 0; /* aborted, and not worth a retry */
		m->rip = next;
		return 1;
	}
	tls.rcx = m->rcx;
	tls.desc = desc;
	m->rcx = next;
	m->rip = (u64)sf_entry_entropy;
	return 1;
}

static int in_agent(u64 ip)
{
	return ip >= SF_BASE && ip < SF_AGENT_END;
}

static int within(u64 ip, const u8 *from, const u8 *to)
{
	return ip >= (u64)from && ip <= (u64)to;
}

/* In a handler of the kernel's the leader is deaf, except to what ends or stops the program
 * at once: a fault may have to wait for the others. */
static void open_defaults(void)
{
	if (me.slot == 0)
		set_mask((blocked(app.mask) | handled()) & ~(FAULTS | UNBLOCKABLE));
}

struct fault {
	int s;
	struct sf_siginfo *info;
	struct sigcontext *m;
};

static enum sf_claim signal_claim(struct sf_event *e, struct sf_regs *r, void *arg)
{
	struct fault *f = arg;
	if (unlikely(app.map_files) && (app.action[f->s].handler <= SIG_IGN || (app.mask & BIT(f->s))) && sf_shared_fault(r))
		return SF_ANEW;
	SF_FLIP_POINT(me.next, flip_event, SF_T_EVENT);
	*e = (struct sf_event){ .seq = me.next, .nr = (u32)f->s, .kind = SF_K_FAULT, .lockstep = 1 };
	e->args[0] = (u64)(u32)f->info->code;
	e->args[1] = f->info->words[0];
	e->args[2] = f->m->trapno;
	e->args[3] = f->m->err;
	/* A fault may strike between any two instructions: all registers are claims. */
	sf_hash_bytes(&e->bytes, r, sizeof *r);
	return SF_CLAIMED;
}

static const struct sf_result *signal_act(struct sf_event *e, void *arg)
{
	(void)arg;
	return sf_result_flags(e, 0);
}

static const struct sf_step faults = { signal_claim, NULL, signal_act, NULL, NULL, 1 };

/* A fault of the program: all replicas must have it, at the same place. */
static void on_fault(int s, struct sf_siginfo *info, struct rt_frame *f)
{
	struct sf_regs *r = &me.fault_regs;
	struct sigcontext *m = &f->uc.mc;
	struct fault what = { s, info, m };
	struct sf_event e;
	sf_seek_no_more(f); /* an event comes first */
	sf_regs_from(r, m);
	me.regs = r;
	me.doing = SF_D_FAULT;
	me.fault_frame = (u64)f;
	open_defaults();
	struct sf_replica *own = &G->slot[me.slot];
	own->fault_addr = info->words[0];
	own->fault_ip = m->rip;
	own->fault_signo = (u32)s;
	own->fault_code = (u32)info->code;
	if (sf_event(&e, r, &faults, &what) == SF_UNDONE) {
		/* A transplant gave this process another position: the new registers say
		 * where, and a syscall event starts again by entering the agent anew. */
		me.restarted = 0;
		sf_as_event(r);
		sf_regs_to(m, r);
		goto out;
	}
	if (app.action[s].handler <= SIG_IGN || (app.mask & BIT(s))) {
		sf_domain_leave();
		die_of(s);
	}
	struct build b = { .r = r, .i = info, .trapno = m->trapno, .err = m->err, .cr2 = m->cr2, .fp = (void *)m->fpstate };
	deliver(&b);
	/* The handler starts with initial vector state: give the kernel an empty image. */
	if (m->fpstate)
		*(u64 *)(m->fpstate + 512) = 0;
	sf_regs_to(m, r);
out:
	sf_kernel_mask();
	me.fault_frame = 0;
}

/* A fault by the clock strikes wherever the program is: it computes, or waits in a call of ours. */
static COLD void on_tick(struct rt_frame *f, int agent)
{
	struct sigcontext *m = &f->uc.mc;
	u8 *fp = (u8 *)m->fpstate;
	if (fp)
		complete(&(struct completion){ fp, xmask, 0 });
	if (agent) {
		if (me.regs)
			sf_flip_tick(me.regs, fp);
		return;
	}
	struct sf_regs r;
	sf_regs_from(&r, m);
	sf_flip_tick(&r, fp);
	sf_regs_to(m, &r);
}

/* A call that no trampoline made: the agent is entered as if one had. The architecture is in the high half of the second
 * word (sigaction(2)). */
static void call_that_trapped(const struct sf_siginfo *info, struct sigcontext *m)
{
	G->slot[me.slot].slow++;
	if ((u32)(info->words[1] >> 32) != 0xc000003eu)
		m->rax = SF_NR_INT80; /* refused, once all agree that it was asked for */
	else
		me.trapped = m->rip;
	m->rcx = m->rip;
	m->rip = (u64)sf_entry_syscall;
}

/* This replica is lost, its leader's role included; the program is not. */
static NORETURN void lost_signal(int s, const struct sf_siginfo *info, u64 ip)
{
	G->slot[me.slot].fault_addr = info->words[0];
	G->slot[me.slot].fault_ip = ip;
	G->slot[me.slot].fault_signo = (u32)s;
	sf_raise(SF_A_FAULTED, 0);
	store(&G->slot[me.slot].phase, SF_P_DEAD);
	for (;;)
		sys1(NR_exit_group, 128 + s);
}

/* The kernel has acted for the leader, who alone knows what it answered, and who is not back in the program yet, wherever a
 * jump was to: the event starts again, once, and takes the answer from where it is kept (sf_call_agreed). */
static int begins_again(struct sigcontext *m)
{
	if (likely(me.made != me.next) || me.slot != 0 || me.role != SF_LEADER || me.doing != SF_D_SYSCALL || me.retried == me.next)
		return 0;
	me.retried = me.next;
	me.guard = NULL;
	me.interruptible = 0;
	sf_as_event(me.regs);
	sf_regs_to(m, me.regs);
	return 1;
}

/* What an instruction has raised. Returns where the code stood that is gone back to, or stands now, if another place was
 * chosen for it. */
static u64 on_instruction(int s, struct sf_siginfo *info, struct rt_frame *f)
{
	struct sigcontext *m = &f->uc.mc;
	const u64 ip = m->rip;
	const int inside = in_agent(ip);
	const int stepped = s == SIGTRAP && info->code == TRAP_TRACE;
	if (s == SIGSYS && (info->code == SYS_USER_DISPATCH || info->code == SYS_SECCOMP) && !inside) {
		call_that_trapped(info, m);
		return ip;
	}
	if (stepped && me.seek) {
		if (inside) { /* an event comes first */
			sf_seek_no_more(f);
			return ip;
		}
		sf_step(f);
		return m->rip;
	}
	if (stepped && inside) {
		/* The program steps itself: its trace flag came with it into the agent. */
		m->eflags &= ~TF;
		me.stepping = 1;
		return ip;
	}
	if (!inside && on_entropy_trap(s, info, m))
		return ip;
	if (begins_again(m))
		return m->rip;
	if (me.guard && inside) {
		/* Leave the handler for the guard: mask and stack as they were. */
		m->rdi = (u64)me.guard;
		me.guard = NULL;
		m->rip = (u64)sf_guard_fail;
		return ip;
	}
	if (inside)
		lost_signal(s, info, ip);
	on_fault(s, info, f);
	return m->rip;
}

/* A call about to be made must not sleep through a signal, and one that the kernel would start again must not start. The
 * gate's r11 is 1 until the kernel has been entered, which leaves the flags there: never 1. */
static void interrupts_call(struct sigcontext *m)
{
	const u64 ip = m->rip;
	if (!me.interruptible)
		return;
	tls.abort = 1;
	if (ip >= (u64)sf_gate_open && ip <= (u64)sf_gate_syscall) {
		me.rewound = ip == (u64)sf_gate_syscall && m->r11 != 1;
		m->rip = (u64)sf_gate_pending;
	}
}

/* The launcher's word. */
static void on_nudge(struct rt_frame *f)
{
	struct sigcontext *m = &f->uc.mc;
	if (unlikely(sf_flip_is_due()))
		on_tick(f, in_agent(m->rip));
	const int inside = in_agent(m->rip);
	if (me.slot == 0 && !inside && load(&G->look_asked) != G->look_heard)
		sf_threads_asked();
	if (me.slot == 0 && me.role == SF_LEADER)
		sf_wards_look();
	/* An alarm about an event is for those who have come to it. */
	const int called = load(&G->aligning) && load(&G->slot[me.slot].called);
	if (!inside && (called || (load(&G->alarm) && (me.slot == 0 || G->alarm_seq == 0))))
		sf_pause_here(f);
	else
		interrupts_call(m);
}

/* Back through the kernel, which restores vector state and mask, to code that stood at `ip`. Where that may stand with the
 * selector at 0 it stays so, which the handler around a nested one does not mind either; otherwise a tail closes it again. */
static NORETURN void back(struct rt_frame *f, u64 frame, u64 ip)
{
	struct sigcontext *m = &f->uc.mc;
	if (unlikely(me.seek) && sf_steps_on(f))
		sf_sigreturn(frame + 8);
	if (within(ip, sf_gate_syscall, sf_gate_return) || within(ip, sf_raw_syscall, sf_raw_return) ||
	    within(ip, sf_sigreturn_syscall, sf_sigreturn_return) ||
	    (m->rsp > (u64)sf_alt_stack && m->rsp <= (u64)sf_alt_stack + ALT_STACK_BYTES))
		sf_sigreturn(frame + 8);
	/* At the tail the address to go to is already in tls.resume. */
	if (ip != (u64)sf_sigreturn_tail && ip != (u64)sf_sigreturn_jump)
		tls.resume = m->rip;
	m->rip = (u64)sf_sigreturn_tail;
	sf_sigreturn(frame + 8);
}

void sf_on_signal(int s, struct sf_siginfo *info, void *ucv, u64 frame)
{
	struct rt_frame *f = (void *)frame;
	struct sigcontext *m = &f->uc.mc;
	(void)ucv;
	if (unlikely(s == SIGTRAP && info->code == TRAP_BRKPT && (m->eflags & TF)))
		info->code = TRAP_TRACE;
	if (unlikely(s == SIGTRAP && info->code == TRAP_TRACE && (G->options & SF_O_PROFILE))) {
		sf_profile(m->rip);
		sf_sigreturn(frame + 8);
	}
	tls.selector = 1;
	u64 token = tls.token;
	u64 ip;
	if ((BIT(s) & FAULTS) && info->code > 0) {
		ip = on_instruction(s, info, f);
	} else {
		if (IS_NUDGE(s, info)) {
			on_nudge(f);
		} else if (unlikely(sf_take_ends(s, info))) {
			interrupts_call(m);
		} else {
			if (me.slot == 0)
				take_signal(s, info, f);
			interrupts_call(m);
		}
		ip = m->rip;
	}
	tls.token = token;
	back(f, frame, ip);
}
