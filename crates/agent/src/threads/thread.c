/* Threads: one runs at a time, equally in all replicas.
 *
 *   clone ──► ready ──► runs ──► ready          it gives way: sched_yield, or others have waited long
 *               ▲         ├────► futex          woken by another thread, or its time is over
 *               │         ├────► call           the leader finds that its call would go on
 *               └─────────┴──────┘
 *
 * A thread is no thread of the kernel's. Its registers, vector state, FS base, mask and the rest of
 * struct sf_thread are parked while another one runs, and the change is a function of the log: which
 * thread runs is a part of every claim, and order is that of the table. So a data race, a spin lock or
 * a publication by plain stores goes the same way in every replica.
 *
 * A call that would wait is not made (try.c): its thread is parked where the call begins, and makes it
 * again when the leader has seen that it can. If no thread can run, the leader waits for all of them in
 * one ppoll: an event of the agent's own, whose result says who goes on.
 *
 * Invariants
 *  1. A thread changes only at the end of an event, where app.turn says so: whatever way leads back to
 *     the program looks at it (sf_turn), after a repair as well.
 *  2. With SF_NOBODY running, the registers of the event are those of the last one that ran.
 *
 * A thread that computes without an event is made to give way: replicas meet (alignment.rs), and from then on count how often
 * they come by the payloads that were planted for it. Equal budgets are used up at the same pass. One that only waits for
 * another thread, as what it does behind a turn of the others shows, has a small budget (stretch_ends). A place where budgets
 * end may lie between a lock and its release, so half of the turns end before an instruction that may take a lock (aims).
 *
 * Not covered: loops in which nothing can be planted (docs/reference/limits-run.md); calls that can be neither polled for
 * nor tried (try.c) stop all threads while they wait.
 */
#include "agent.h"
#include <asm/errno.h>

#define PR_SET_NAME 15
#define PR_GET_NAME 16
#define PR_GET_TID_ADDRESS 40
#define CLONE_VM 0x100u
#define CLONE_FS 0x200u
#define CLONE_FILES 0x400u
#define CLONE_SIGHAND 0x800u
#define CLONE_THREAD 0x10000u
#define CLONE_SYSVSEM 0x40000u
#define CLONE_SETTLS 0x80000u
#define CLONE_PARENT_SETTID 0x100000u
#define CLONE_CHILD_CLEARTID 0x200000u
#define CLONE_DETACHED 0x400000u /* without a meaning since Linux 2.6; musl sets it */
#define CLONE_UNTRACED 0x800000u  /* this and the next: as in calls/spawn.c */
#define CLONE_CHILD_SETTID 0x1000000u
#define CLONE_IO 0x80000000u
#define HAS (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD)
#define MAY \
	(CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | CLONE_DETACHED | CLONE_UNTRACED | \
	 CLONE_CHILD_SETTID | CLONE_IO)

enum { SIGKILL = 9, SIGCHLD = 17, SIGCONT = 18, SIGSTOP = 19, SIGTSTP = 20, SIGTTOU = 22, SIGURG = 23, SIGWINCH = 28 };
#define BIT(s) (1ull << ((s) - 1))
#define SA_RESTART 0x10000000ull
#define SI_TKILL (-6)
#define SI_TIMER (-2)
#define SIGRTMIN 32 /* the kernel's: that of libraries is higher */
#define SS_DISABLE 2u
#define ROBUST_BYTES 24u

/* A thread gives way after so many events while others could run. */
#define SHARE 64u
/* One that has computed for a whole slice comes behind those that become ready within so many steps: who waits for input does not
 * wait for a slice of each that computes. With two steps for a turn that is about a millisecond of a server's, and some
 * hundred of threads that hand each other work of milliseconds. */
#define BEHIND 128u
/* Ticks after which a running program looks for calls that would go on: some tenths of a millisecond. */
#define LOOK_TICKS 500000u
/* Passes of planted payloads that a thread has at first: the first time that they are used up tells how long they take. */
#define QUANTUM 4096u
#define QUANTUM_MIN 16u
#define QUANTUM_MAX (1ull << 40)
/* One that waits for another thread by looking gives way after so many, and after twice as many each time until it has what it
 * waits for: so it waits at most twice as long as it has to, and takes little of the time in which the other one computes. */
#define QUANTUM_SPIN 64u
/* It is taken for one that computes when so many computations have gone on behind a turn of the others. */
#define SPINS 8u
/* One turn in so many that could end at a lock tries again those that its thread did not come by. */
#define TRIES_AGAIN 32u
/* Of a process in which nobody waits for his turn: signals are heard in so many times a slice, and after so many in which none
 * has come replicas need no longer meet for them, which takes time where they share cores. */
#define HEARS 4u
#define DEAF_AFTER 500u

struct table {
	u64 order; /* the last one given: struct sf_thread, `since` */
	u32 top;   /* entries ever used */
	u32 made;  /* threads made */
	u64 heard; /* the time at the last look, CLOCK_MONOTONIC in nanoseconds */
	u64 fatal; /* a signal to one of them, by which the program ends */
};
#define T ((struct table *)SF_THREADS)

struct sf_thread *sf_thread_at(u32 index)
{
	ASSERT(index < SF_THREADS_MAX);
	return (struct sf_thread *)(SF_THREADS + (u64)SF_THREAD_BYTES * (index + 1));
}

struct sf_thread *sf_thread_now(void)
{
	return sf_thread_at(app.current);
}

u64 sf_thread_order(void)
{
	return ++T->order;
}

/* There is no table before the first clone(2). */
u32 sf_thread_top(void)
{
	if (!app.threads)
		return 0;
	ASSERT(T->top <= SF_THREADS_MAX);
	return T->top;
}

/* The number of the thread that runs. */
u32 sf_thread_id(void)
{
	return app.threads ? sf_thread_now()->tid : G->leader_pid;
}

static struct sf_thread *numbered_thread(u32 tid)
{
	for (u32 i = 0; app.threads && i < sf_thread_top(); i++)
		if (sf_thread_at(i)->state != SF_TH_FREE && sf_thread_at(i)->tid == tid)
			return sf_thread_at(i);
	return NULL;
}

void sf_thread_ready(struct sf_thread *t)
{
	t->state = SF_TH_READY;
	t->since = sf_thread_order();
}

/* ---- making and ending ---- */

struct wanted {
	u64 flags, stack, parent_tid, child_tid, tls;
};

static int read_wanted(u32 nr, const u64 a[6], struct wanted *w)
{
	u64 c[8]; /* struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls */
	if (nr == NR_clone) {
		*w = (struct wanted){ a[0], a[1], a[2], a[3], a[4] };
		return 1;
	}
	if (nr != NR_clone3 || a[1] < sizeof c || sf_user_bytes(c, a[0], sizeof c) < 0)
		return 0;
	*w = (struct wanted){ c[0], c[5] + c[6], c[3], c[2], c[7] };
	return !c[4] && (!c[5] == !c[6]);
}

/* Whether a clone makes a thread as pthread_create, musl and Go do. Others with CLONE_THREAD are refused. */
int sf_is_thread(u32 nr, const u64 a[6])
{
	struct wanted w;
	return read_wanted(nr, a, &w) && (w.flags & HAS) == HAS && !(w.flags & ~(u64)(HAS | MAY));
}

/* What keeps it from being such a thread, as sf_spawn_odd says it. */
u64 sf_thread_odd(u64 flags)
{
	const u64 more = flags & ~(u64)(HAS | MAY), less = HAS & ~flags;
	return more ? more : less ? less | SF_LEFT_OUT : 0;
}

/* A turn of threads reads one and sets one: by calls they were a fifth of it. */
static u64 get_fs(void)
{
	u64 v = 0;
	if (likely(sf_boot.fsgsbase))
		__asm__ volatile("rdfsbase %0" : "=r"(v));
	else
		sys2(NR_arch_prctl, 0x1003 /* ARCH_GET_FS */, &v);
	return v;
}

/* The kernel refuses what is no address of the program's; the instruction would fault, or take one of the kernel's half. */
static void set_fs(u64 v)
{
	if (likely(sf_boot.fsgsbase && v < 1ull << 47))
		__asm__ volatile("wrfsbase %0" ::"r"(v));
	else
		sys2(NR_arch_prctl, 0x1002 /* ARCH_SET_FS */, v);
}

/* Negative errno if there is no memory for the table. */
static s64 begin_table(void)
{
	s64 r = sys6(NR_mmap, SF_THREADS, SF_THREADS_BYTES, 3,
		     0x2 | 0x20 | 0x4000 | 0x100000 /* PRIVATE|ANONYMOUS|NORESERVE|FIXED_NOREPLACE */, -1, 0);
	if (r != (s64)SF_THREADS)
		return r < 0 ? r : -ENOMEM;
	struct sf_thread *first = sf_thread_at(0);
	first->state = SF_TH_RUNS;
	first->tid = G->leader_pid;
	T->top = 1;
	app.threads = 1;
	app.current = 0;
	return 0;
}

/* The launcher looks after threads that wait only if there are any. */
static void show_threads(void)
{
	if (me.slot == 0)
		store(&G->threads, app.threads);
}

static void count_passes(u32 on)
{
	app.counts = on;
	if (me.slot == 0)
		store(&G->counts, on != 0);
}

/* Nobody waits for its turn. */
static int by_itself(void)
{
	return app.threads < 2 && !app.domain;
}

/* One that nobody has now, and that nobody had lately. */
static u32 new_number(void)
{
	u32 tid;
	do
		tid = SF_TID_OF(G->leader_pid, ++T->made % SF_THREADS_MAX);
	while (numbered_thread(tid));
	return tid;
}

static s64 make_thread(u32 nr, const u64 a[6], const struct sf_regs *r)
{
	struct wanted w;
	u32 i = 0;
	if (!read_wanted(nr, a, &w))
		return -EINVAL;
	s64 err = app.threads ? 0 : begin_table();
	if (err)
		return err;
	while (i < sf_thread_top() && sf_thread_at(i)->state != SF_TH_FREE)
		i++;
	if (i == SF_THREADS_MAX)
		return -EAGAIN;
	struct sf_thread *t = sf_thread_at(i);
	memset(t, 0, sizeof *t);
	t->tid = new_number();
	t->regs = *r;
	t->regs.rax = 0;
	if (w.stack)
		t->regs.rsp = w.stack;
	t->fs_base = w.flags & CLONE_SETTLS ? w.tls : get_fs();
	sf_fp_save(t->fp);
	t->mask = app.mask;
	t->alt_flags = SS_DISABLE;
	t->clear_tid = w.flags & CLONE_CHILD_CLEARTID ? w.child_tid : 0;
	if ((w.flags & CLONE_PARENT_SETTID) && sf_user_put(w.parent_tid, &t->tid, 4))
		return -EFAULT;
	if (w.flags & CLONE_CHILD_SETTID)
		sf_user_put(w.child_tid, &t->tid, 4);
	memcpy(t->name, sf_thread_now()->name, sizeof t->name);
	if (i == T->top)
		T->top++;
	app.threads++;
	show_threads();
	sf_thread_ready(t);
	return t->tid;
}

/* As the kernel at the end of a thread: owners that are gone are marked in their locks, the joiner is woken. */
static void end_thread(void)
{
	struct sf_thread *t = sf_thread_now();
	const u32 none = 0;
	t->robust = app.robust;
	sf_futex_leave(t->robust, t->tid);
	if (app.clear_tid && sf_user_put(app.clear_tid, &none, 4) == 0)
		sf_futex_wake(app.clear_tid, 1, ~0u);
	if (me.slot == 0)
		sf_parked_ends(app.current);
	sf_queued_forget(t->tid);
	memset(t, 0, sizeof *t);
	app.threads--;
	show_threads();
	app.current = SF_NOBODY;
	app.turn = SF_TURN_GIVE;
}

/* The process ends: none of its threads gives back what it has locked. */
void sf_threads_leave_locks(void)
{
	for (u32 i = 0; app.threads && i < sf_thread_top(); i++) {
		const struct sf_thread *t = sf_thread_at(i);
		if (i != app.current && t->state != SF_TH_FREE)
			sf_futex_leave(t->robust, t->tid);
	}
	if (app.current != SF_NOBODY)
		sf_futex_leave(app.robust, sf_thread_id());
}

/* ---- names: the kernel has the process's, which is its first thread's ---- */

/* Whether a call of prctl(2) is about the name of the running thread alone. One without a name of its own is shown the process's: it
 * has inherited that, and would not see that the first thread has taken another name since. */
int sf_thread_is_named(const u64 a[6])
{
	const struct sf_thread *t = sf_thread_now();
	return app.threads && t->tid != G->leader_pid && (a[0] == PR_SET_NAME || (a[0] == PR_GET_NAME && t->name[0]));
}

/* ... or about the running thread in another way. */
int sf_thread_answers(const u64 a[6])
{
	return (u32)a[0] == PR_GET_TID_ADDRESS || sf_thread_is_named(a);
}

static s64 name_thread(const u64 a[6])
{
	char *name = sf_thread_now()->name, room[sizeof sf_thread_now()->name] = { 0 };
	if (a[0] == PR_GET_NAME)
		return sf_user_put(a[1], name, sizeof room);
	for (u32 i = 0; i < sizeof room - 1; i++) {
		if (sf_user_bytes(&room[i], a[1] + i, 1) < 0)
			return -EFAULT;
		if (!room[i])
			break;
	}
	memcpy(name, room, sizeof room);
	return 0;
}

/* The thread has become the first of a process. */
static void name_process(struct sf_thread *t)
{
	const u64 a[6] = { PR_SET_NAME, (u64)t->name };
	if (!t->name[0])
		return;
	sys2(NR_prctl, a[0], a[1]);
	sf_kernel_note(NR_prctl, a, 0);
	memset(t->name, 0, sizeof t->name);
}

/* In a child of fork(2), which has the thread that called it and no other. */
void sf_threads_keep_current(void)
{
	app.quantum = tls.budget = tls.aim = 0;
	app.yields = app.spins = 0;
	app.cold = 0;
	count_passes(0);
	if (!app.threads)
		return;
	for (u32 i = 0; i < sf_thread_top(); i++)
		if (i != app.current)
			sf_thread_at(i)->state = SF_TH_FREE;
	sf_thread_now()->tid = G->leader_pid;
	sf_thread_now()->pending = 0;
	sf_queued_forget_all();
	app.threads = 1;
	app.turn = 0;
	name_process(sf_thread_now());
}

/* ---- signals to one thread ---- */

static int ignored(int s)
{
	u64 h = app.action[s].handler;
	return h == 1 || (h == 0 && (s == SIGCHLD || s == SIGCONT || s == SIGURG || s == SIGWINCH));
}

static u64 blocks(const struct sf_thread *t)
{
	return t->has_wait_mask ? t->wait_mask : t->mask;
}

/* It waits in a call, or is about to ask again whether it has to. */
static int is_in_call(const struct sf_thread *t)
{
	return t->state == SF_TH_CALL || (t->state == SF_TH_READY && t->retry);
}

static u32 index_of(const struct sf_thread *t)
{
	return (u32)(((u64)t - (u64)sf_thread_at(0)) / SF_THREAD_BYTES);
}

/* A handler comes before what a thread waits for goes on: the call ends, or is made again after it (signal(7)). */
static void interrupt(struct sf_thread *t, int s, u64 now)
{
	int restarts = (app.action[s].flags & SA_RESTART) != 0;
	struct sf_regs *r = &t->regs;
	if (me.slot == 0 && t->nr == NR_futex && is_in_call(t))
		sf_parked_leaves(index_of(t));
	if (t->state == SF_TH_FUTEX && (t->pi || (restarts && !t->deadline))) {
		r->rax = NR_futex;
		r->rcx = r->rip;
		r->rip = (u64)sf_entry_syscall;
	} else if (t->state == SF_TH_FUTEX) {
		r->rax = (u64)-EINTR;
		t->deadline = 0;
	} else if (is_in_call(t) && (!restarts || (sf_waits[t->nr & 511] & SF_WAITS_ENDS))) {
		u64 to = t->nr == NR_nanosleep ? r->rsi : t->nr == NR_clock_nanosleep && !(r->rsi & 1) ? r->r10 : 0;
		u64 left = t->deadline > now ? t->deadline - now : 0;
		const u64 rest[2] = { left / 1000000000, left % 1000000000 };
		if (to && t->deadline)
			sf_user_put(to, rest, sizeof rest);
		r->rax = (u64)-EINTR;
		r->rip = r->rcx;
		t->deadline = 0;
		if (t->nr == NR_open || t->nr == NR_openat)
			sf_fifo_leave(index_of(t));
	}
	if (unlikely(t->parts.stage)) {
		sf_parts_cut(&t->parts, r, t->done_of_call);
		t->done_of_call = 0;
	}
	t->retry = 0;
	t->pi = 0;
}

/* The signals in the set of sigtimedwait(2). */
static u64 asked_for(u64 set)
{
	u64 signals = 0;
	return sf_user_bytes(&signals, set, sizeof signals) == 0 ? signals : 0;
}

static u64 blocked_now(void)
{
	return app.has_wait_mask ? app.wait_mask : app.mask;
}

/* What no thread takes, if the one that runs blocks `mask`. */
u64 sf_threads_block(u64 mask)
{
	u64 m = app.current == SF_NOBODY ? ~0ull : mask;
	for (u32 i = 0; i < sf_thread_top(); i++)
		if (i != app.current && sf_thread_at(i)->state != SF_TH_FREE)
			m &= blocks(sf_thread_at(i));
	return m;
}

static struct sf_siginfo by_thread(int s, u32 uid)
{
	return (struct sf_siginfo){ .signo = s, .code = SI_TKILL, .words = { (u64)uid << 32 | G->leader_pid } };
}

/* Takes the first of that number. */
static const struct sf_siginfo *sent(struct sf_thread *t, int s, struct sf_siginfo *room)
{
	if (!sf_queued_take(t->tid, s, room))
		*room = by_thread(s, t->uid);
	if (!sf_queued_has(t->tid, s))
		t->pending &= ~BIT(s);
	return room;
}

/* One more. What is no real-time signal is pending once. */
static s64 post(struct sf_thread *t, const struct sf_siginfo *i)
{
	const int queues = i->signo >= SIGRTMIN;
	if (!queues && (t->pending & BIT(i->signo)))
		return 0;
	if (sf_queued_add(t->tid, i) < 0 && queues)
		return -EAGAIN;
	t->pending |= BIT(i->signo);
	return 0;
}

/* It waits in a futex or a call: it goes on if its handler runs, or its sigtimedwait(2) has it. */
static void rouse(struct sf_thread *t, int s)
{
	if (t->state != SF_TH_FUTEX && !is_in_call(t))
		return;
	if (!(blocks(t) & BIT(s)) && app.action[s].handler > 1) {
		interrupt(t, s, T->heard);
		if (t->state != SF_TH_READY)
			sf_thread_ready(t);
	} else if (t->state == SF_TH_CALL && t->nr == NR_rt_sigtimedwait && (asked_for(t->regs.rdi) & BIT(s))) {
		sf_thread_ready(t); /* its call begins again */
	}
}

static struct sf_thread *timers_thread(const struct sf_siginfo *i)
{
	const u32 tid = i->code == SI_TIMER ? sf_timer_thread((u32)i->words[0]) : 0;
	return tid ? numbered_thread(tid) : NULL;
}

static int leave_with(struct sf_thread *t, const struct sf_siginfo *i)
{
	post(t, i);
	rouse(t, i->signo);
	app.turn |= SF_TURN_GIVE;
	return 1;
}

/* What of `signals` a thread blocks, which may be the one that runs. */
u64 sf_thread_blocks(u32 tid, u64 signals)
{
	const struct sf_thread *t = numbered_thread(tid);
	if (!t)
		return 0;
	return signals & (app.current != SF_NOBODY && t == sf_thread_now() ? blocked_now() : blocks(t));
}

/* A timer's signal goes to the thread that it was made for. One to the process that the running thread blocks: the first that does not takes it (complete_signal of the kernel's), and
 * the running one keeps it where none does any more. 0: it is the running one's. */
int sf_thread_diverts(const struct sf_siginfo *i)
{
	u32 k = 0;
	if (app.threads < 2 || app.current == SF_NOBODY)
		return 0;
	struct sf_thread *t = timers_thread(i);
	if (t)
		return t != sf_thread_now() && leave_with(t, i);
	if (!(blocked_now() & BIT(i->signo)))
		return 0;
	while (k < sf_thread_top() &&
	       (k == app.current || sf_thread_at(k)->state == SF_TH_FREE || (blocks(sf_thread_at(k)) & BIT(i->signo))))
		k++;
	return leave_with(sf_thread_at(k < sf_thread_top() ? k : app.current), i);
}

/* sigtimedwait(2) of one that was sent to this thread alone: the kernel knows nothing of it. */
int sf_thread_is_sent(const u64 a[6])
{
	return app.threads && a[3] == sizeof(u64) && (sf_thread_now()->pending & asked_for(a[0]));
}

static s64 take_thread(const u64 a[6])
{
	struct sf_thread *t = sf_thread_now();
	int s = __builtin_ctzll(t->pending & asked_for(a[0])) + 1;
	struct sf_siginfo room;
	const struct sf_siginfo *i = sent(t, s, &room);
	return a[1] && sf_user_put(a[1], i, sizeof *i) ? -EFAULT : s;
}

/* tkill(2), tgkill(2), rt_tgsigqueueinfo(2): which thread, and which signal. */
static void read_aim(u32 nr, const u64 a[6], u32 *tid, u32 *s)
{
	const u64 *at = nr == NR_tkill ? a : a + 1;
	*tid = (u32)at[0];
	*s = (u32)at[1];
}

static s64 send(u32 nr, const u64 a[6], u64 uid)
{
	u32 tid, s;
	read_aim(nr, a, &tid, &s);
	struct sf_thread *t = numbered_thread(tid);
	struct sf_siginfo i = by_thread((int)s, (u32)uid);
	if (nr == NR_rt_tgsigqueueinfo && sf_user_bytes(&i, a[3], sizeof i) < 0)
		return -EFAULT;
	if (s > SF_SIGNALS)
		return -EINVAL;
	if (!t)
		return -ESRCH;
	if (!s || (ignored((int)s) && !(blocks(t) & BIT(s))))
		return 0;
	i.signo = (s32)s;
	const s64 r = post(t, &i);
	if (r < 0)
		return r;
	t->uid = (u32)uid;
	if (t == sf_thread_now()) {
		app.turn |= SF_TURN_SIGNAL;
	} else if (app.action[s].handler == 0 && !(blocks(t) & BIT(s))) {
		T->fatal = s; /* behind this event: no replica has ended before all have the call's result */
		app.turn |= SF_TURN_SIGNAL;
	} else {
		rouse(t, (int)s);
	}
	return 0;
}

/* What ends or stops all threads is the kernel's, and so is what other processes get. */
static int is_for_all(u32 s)
{
	return s == SIGKILL || s == SIGSTOP || (s >= SIGTSTP && s <= SIGTTOU && app.action[s].handler == 0);
}

/* Whether the agent answers a call about threads: whoever names one of those that the kernel does not know. */
int sf_thread_takes(u32 nr, const struct sf_call *c, const u64 a[6])
{
	u32 tid, s;
	if (!app.threads || (c->handler != SF_H_tkill && c->handler != SF_H_tgkill && nr != NR_rt_tgsigqueueinfo))
		return 0;
	read_aim(nr, a, &tid, &s);
	if (is_for_all(s) || (nr != NR_tkill && (u32)a[0] != G->leader_pid))
		return 0;
	return numbered_thread(tid) != NULL;
}

/* Calls of the leader that name one of these threads: to the kernel it is the process, which has what they share. A clock of
 * one thread's CPU time is that of all. */
void sf_thread_translate(u32 nr, u64 call[7])
{
	u64 *who = NULL;
	switch (nr) {
	case NR_sched_setparam:
	case NR_sched_getparam:
	case NR_sched_setscheduler:
	case NR_sched_getscheduler:
	case NR_sched_rr_get_interval:
	case NR_sched_setattr:
	case NR_sched_getattr:
	case NR_prlimit64:
	case NR_kill:
	case NR_rt_sigqueueinfo: /* either takes a thread for its process */
	case NR_tkill: who = &call[1]; break;
	case NR_tgkill:
	case NR_rt_tgsigqueueinfo: who = &call[2]; break;
	case NR_getpriority:
	case NR_setpriority: who = call[1] == 0 /* PRIO_PROCESS */ ? &call[2] : NULL; break;
	case NR_timer_create: sf_timer_translate(call); return;
	case NR_clock_gettime:
	case NR_clock_getres:
		/* ~number << 3 | 4 (of a thread) | which clock: clock_getcpuclockid(3) */
		if ((s32)call[1] < 0 && (call[1] & 4) && numbered_thread(~(u32)((s32)call[1] >> 3)))
			call[1] = 2; /* CLOCK_PROCESS_CPUTIME_ID */
		return;
	}
	if (who && (u32)*who >= SF_TID_FIRST && numbered_thread((u32)*who))
		*who = G->leader_pid;
}

int sf_thread_names(u64 tid)
{
	return (u32)tid >= SF_TID_FIRST && numbered_thread((u32)tid) != NULL;
}

/* The program has given one that waited behind its mask its default action. */
static void stop_all(void)
{
	if (me.slot == 0)
		sys2(NR_kill, sys0(NR_getpid), SIGSTOP);
}

/* Signals to the thread that runs, each handler on top of the one before. */
static void take_signals(struct sf_regs *r)
{
	struct sf_thread *t = sf_thread_now();
	u64 some;
	while ((some = t->pending & ~blocked_now())) {
		int s = __builtin_ctzll(some) + 1;
		struct sf_siginfo room;
		const struct sf_siginfo *i = sent(t, s, &room);
		if (ignored(s))
			continue;
		if (is_for_all((u32)s))
			stop_all();
		else if (app.action[s].handler == 0)
			sf_die_agreed(r, (u32)s);
		else
			sf_deliver(r, i);
	}
	sf_after_wait();
}

/* ---- calls of the program about threads: what each replica does for itself ---- */

/* Of one of the program's threads, which the kernel knows as none (get_robust_list(2)). */
static s64 tell_robust(const u64 a[6])
{
	const struct sf_thread *t = (u32)a[0] && app.threads ? numbered_thread((u32)a[0]) : NULL;
	const u64 head = t && t != sf_thread_now() ? t->robust : app.robust, bytes = ROBUST_BYTES;
	const s64 r = sf_user_put(a[2], &bytes, sizeof bytes);
	return r ? r : sf_user_put(a[1], &head, sizeof head);
}

/* `*aux`: what only the leader knows, a time or a user; others are given it. */
s64 sf_thread_call(u32 nr, const u64 a[6], struct sf_regs *r, u64 *aux, int leads)
{
	switch (nr) {
	case NR_clone:
	case NR_clone3: return make_thread(nr, a, r);
	case NR_gettid: return sf_thread_id();
	case NR_set_tid_address: app.clear_tid = a[0]; return sf_thread_id();
	case NR_set_robust_list:
		if (a[1] != ROBUST_BYTES)
			return -EINVAL;
		app.robust = a[0];
		if (G->replicas == 1 && sf_thread_id() == G->leader_pid)
			sys2(NR_set_robust_list, a[0], a[1]); /* nobody agrees on its end: the kernel looks at it */
		return 0;
	case NR_futex: return sf_futex(a, aux, leads);
	case NR_tkill:
	case NR_tgkill:
	case NR_rt_tgsigqueueinfo:
		if (leads)
			*aux = (u64)sys0(NR_getuid);
		return send(nr, a, *aux);
	case NR_rt_sigtimedwait: return take_thread(a);
	case NR_get_robust_list: return tell_robust(a);
	case NR_prctl:
		if ((u32)a[0] == PR_GET_TID_ADDRESS)
			return sf_user_put(a[1], &app.clear_tid, sizeof app.clear_tid);
		return name_thread(a);
	case NR_exit: end_thread(); return 0;
	}
	ASSERT(0);
	return 0;
}

/* ---- who runs ---- */

/* Could another thread go on by itself, or take a signal that the running one blocks? If not, it may wait in the kernel. */
int sf_threads_may_wake(void)
{
	u64 blocked = blocked_now();
	for (u32 i = 0; i < sf_thread_top(); i++) {
		const struct sf_thread *t = sf_thread_at(i);
		if (i != app.current && (t->state == SF_TH_READY || t->state == SF_TH_CALL ||
					 (t->state == SF_TH_FUTEX && (t->deadline || (blocked & ~blocks(t))))))
			return 1;
	}
	return 0;
}

static void begin_slice(u64 quantum);

/* Passes of payloads in this slice. */
static u64 passes_made(void)
{
	return (tls.aim ? 2 : 1) * app.quantum - tls.budget;
}

/* The running thread makes a call. If it had given way before, and went on at once behind the turn of the others, it has waited
 * for one of them, and will do so again. */
static void stretch_ends(void)
{
	if (app.yields) {
		const u64 passes = passes_made(), few = app.quantum / 16;
		app.yields = 0;
		if (passes <= (few < QUANTUM_SPIN ? few : QUANTUM_SPIN))
			app.spins = SPINS;
		else if (app.spins && !--app.spins)
			begin_slice(QUANTUM);
	}
	if (app.spins && app.threads > 1)
		begin_slice(QUANTUM_SPIN);
}

/* The call in r is not made now: it begins again when its thread does. */
void sf_thread_parks(struct sf_regs *r, u32 nr, u64 deadline, u64 retry)
{
	struct sf_thread *t = sf_thread_now();
	stretch_ends();
	t->state = SF_TH_CALL;
	t->since = sf_thread_order();
	t->nr = nr;
	t->deadline = deadline;
	t->retry = retry;
	t->wait_mask = app.wait_mask;
	t->has_wait_mask = app.has_wait_mask;
	sf_after_wait();
	r->rcx = r->rip;
	r->rip = (u64)sf_entry_syscall;
	app.turn |= SF_TURN_GIVE;
	/* A signal that the call's own mask lets through has come before it. */
	u64 some = t->pending & ~blocks(t);
	if (t->has_wait_mask && some) {
		t->regs = *r;
		interrupt(t, __builtin_ctzll(some) + 1, 0);
		*r = t->regs;
		sf_thread_ready(t);
		app.turn |= SF_TURN_SIGNAL;
	}
}

/* After each call that was made. */
void sf_thread_spends(u32 nr)
{
	if (app.current == SF_NOBODY)
		return; /* it has ended */
	struct sf_thread *t = sf_thread_now();
	stretch_ends();
	if (t->state == SF_TH_RUNS)
		t->deadline = t->retry = t->woken = 0;
	if (t->pending & ~app.mask)
		app.turn |= SF_TURN_SIGNAL;
	if (app.threads > 1 && (nr == NR_sched_yield || ++app.spent >= SHARE))
		app.turn |= SF_TURN_GIVE;
}

static void leave(const struct sf_regs *r)
{
	struct sf_thread *t = sf_thread_now();
	t->woken = 0;
	t->regs = *r;
	t->fs_base = get_fs();
	sf_fp_save(t->fp);
	t->mask = app.mask;
	t->alt_sp = app.alt_sp;
	t->alt_size = app.alt_size;
	t->alt_flags = app.alt_flags;
	t->done_of_call = app.done_of_call;
	t->parts = app.parts;
	t->clear_tid = app.clear_tid;
	t->robust = app.robust;
	t->quantum = app.quantum;
	t->yields = app.yields;
	t->spins = app.spins;
	t->cold = app.cold;
	app.done_of_call = 0;
	memset(&app.parts, 0, sizeof app.parts);
	app.current = SF_NOBODY;
}

static void masks(u64 m)
{
	u64 had = app.mask;
	app.mask = m;
	if (me.slot == 0 && (had != m || sf_mask_is_old()))
		sf_kernel_mask();
}

static void enter_thread(u32 index, struct sf_regs *r)
{
	struct sf_thread *t = sf_thread_at(index);
	app.current = index;
	t->state = SF_TH_RUNS;
	sf_futex_goes_on(t);
	*r = t->regs;
	set_fs(t->fs_base);
	sf_fp_load(t->fp);
	app.alt_sp = t->alt_sp;
	app.alt_size = t->alt_size;
	app.alt_flags = t->alt_flags;
	app.done_of_call = t->done_of_call;
	app.parts = t->parts;
	app.clear_tid = t->clear_tid;
	app.robust = t->robust;
	app.spent = 0;
	app.yields = t->yields;
	app.spins = t->spins;
	app.cold = t->cold;
	begin_slice(t->quantum ? t->quantum : app.counts ? QUANTUM : 0);
	t->word = 0;
	if (t->has_wait_mask && (t->pending & ~t->wait_mask)) {
		app.wait_mask = t->wait_mask; /* in force until the handler has its frame */
		app.has_wait_mask = 1;
	}
	t->has_wait_mask = 0;
	masks(t->mask);
}

/* The one that has been ready for longest, but for those that have used up a slice. */
static u32 next(void)
{
	u32 best = SF_NOBODY;
	for (u32 i = 0; i < sf_thread_top(); i++) {
		const struct sf_thread *t = sf_thread_at(i);
		if (t->state == SF_TH_READY && (best == SF_NOBODY || t->since < sf_thread_at(best)->since))
			best = i;
	}
	return best;
}

/* ---- the leader looks which calls would go on ---- */

struct pollfd {
	s32 fd;
	u16 events, revents;
};
#define POLLIN 1u
#define POLLPRI 2u
#define POLLOUT 4u
#define SET_MAX 1024u
static struct pollfd set[SET_MAX];
static u8 whose[SET_MAX];
static u32 set_n;
static u64 earliest; /* deadline of any, or 0 */

static void no_later_than(u64 when)
{
	if (when && (!earliest || when < earliest))
		earliest = when;
}

static void add_thread(u32 index, s32 fd, u32 events)
{
	if (set_n == SET_MAX) {
		no_later_than(sf_now() + 1000000); /* more than can be polled for at once */
		return;
	}
	set[set_n] = (struct pollfd){ fd, (u16)events, 0 };
	whose[set_n++] = (u8)index;
}

static void add_select(u32 index, const struct sf_regs *r)
{
	u64 bits[3][SET_MAX / 64];
	const u64 at[3] = { r->rsi, r->rdx, r->r10 };
	u32 n = (u32)r->rdi < SET_MAX ? (u32)r->rdi : SET_MAX;
	memset(bits, 0, sizeof bits);
	for (u32 k = 0; k < 3; k++)
		if (at[k])
			sf_user_bytes(bits[k], at[k], (n + 63) / 64 * 8);
	for (u32 fd = 0; fd < n; fd++) {
		u32 e = 0;
		for (u32 k = 0; k < 3; k++)
			if (bits[k][fd / 64] >> (fd % 64) & 1)
				e |= k == 0 ? POLLIN : k == 1 ? POLLOUT : POLLPRI;
		if (e)
			add_thread(index, (s32)fd, e);
	}
}

/* Whether a call fills or drains what its first argument names. */
static int sends_thread(u32 nr)
{
	switch (nr) {
	case 1:
	case 18:
	case 20:
	case 40:
	case 42:
	case 44:
	case 46:
	case 242:
	case 296:
	case 307:
	case 328: return 1; /* write, pwrite64, writev, sendfile, connect, sendto, sendmsg, mq_timedsend, pwritev, sendmmsg, pwritev2 */
	}
	return 0;
}

static void add_call(u32 index, const struct sf_thread *t)
{
	const struct sf_regs *r = &t->regs;
	struct pollfd one;
	s32 fd;
	u16 events;
	switch (t->nr) {
	case NR_poll:
	case NR_ppoll:
		for (u32 k = 0; k < (u32)r->rsi; k++)
			if (sf_user_bytes(&one, r->rdi + 8 * k, sizeof one) == 0)
				add_thread(index, one.fd, one.events);
		return;
	case NR_select:
	case NR_pselect6: add_select(index, r); return;
	case NR_epoll_wait:
	case NR_epoll_pwait:
	case NR_epoll_pwait2: add_thread(index, (s32)r->rdi, POLLIN); return;
	case NR_splice:
	case NR_tee: /* one end, or what is ready as well as the other */
		sf_splice_waits(t->nr, (const u64[6]){ r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9 }, &fd, &events);
		add_thread(index, fd, events);
		return;
	}
	if (!t->retry && !(sf_waits[t->nr & 511] & SF_WAITS_ENDS))
		add_thread(index, (s32)r->rdi, sends_thread(t->nr) ? POLLOUT : POLLIN);
}

/* One that runs still may be about to wait: its registers are not in its entry yet. */
static int parked(u32 i)
{
	const struct sf_thread *t = sf_thread_at(i);
	return i != app.current && (t->state == SF_TH_CALL || t->state == SF_TH_FUTEX);
}

static void gather(void)
{
	set_n = 0;
	earliest = 0;
	for (u32 i = 0; i < sf_thread_top(); i++) {
		const struct sf_thread *t = sf_thread_at(i);
		if (!parked(i))
			continue;
		no_later_than(t->deadline);
		no_later_than(t->retry);
		if (t->state == SF_TH_CALL)
			add_call(i, t);
	}
}

/* An event of the agent's own: who goes on? Where nobody runs, the leader waits for it. */
struct look_thread {
	int waits;
	int yields; /* the running thread, whose budget is used up */
	u32 n;
	u16 woken[SF_THREADS_MAX]; /* index; bit 15: because its time is over */
	u64 now;
	struct sf_siginfo info;
};
#define OVER 0x8000u

static enum sf_claim claim_thread(struct sf_event *e, struct sf_regs *r, void *arg)
{
	const struct look_thread *l = arg;
	(void)r;
	me.own_event = 1;
	*e = (struct sf_event){ .seq = me.next, .nr = NR_ppoll, .kind = SF_K_SYSCALL, .lockstep = 1 };
	e->args[0] = app.threads;
	e->args[1] = (u64)l->waits | (u64)l->yields << 1;
	e->args[2] = app.threads ? T->order : 0;
	return SF_CLAIMED;
}

/* 0: a signal, or the launcher's word. */
static int look_thread(struct sf_event *e, const struct look_thread *l)
{
	s64 r, limit[2];
	do {
		gather();
		u64 now = earliest ? sf_now() : 0, left = !l->waits || earliest <= now ? 0 : earliest - now;
		limit[0] = (s64)(left / 1000000000);
		limit[1] = (s64)(left % 1000000000);
		const u64 call[7] = { NR_ppoll, (u64)set, set_n, l->waits && !earliest ? 0 : (u64)limit, 0, 8, 0 };
		tls.abort = 0;
		me.rewound = 0;
		me.interruptible = 1;
		barrier();
		if (unlikely((l->waits && sf_signal_pending()) | (load(&G->alarm) != SF_A_QUIET)))
			tls.abort = 1;
		r = sf_call_agreed(e, call);
		me.interruptible = 0;
		tls.abort = 0;
		if (likely(r != -EINTR && r != SF_NOT_MADE))
			return 1;
	} while (!(l->waits && sf_signal_pending()) && !load(&G->alarm));
	return 0;
}

/* ---- nobody waits for ever ---- */

static u64 slice_began; /* the leader's, in ticks */

/* As equally in all replicas as the event at which it is called. */
static void begin_slice(u64 quantum)
{
	app.quantum = tls.budget = quantum;
	tls.aim = 0;
	slice_began = me.slot == 0 && !me.tsc_traps ? sf_tsc() : 0;
}

/* How many passes take a slice, if those of the last one took as long as they did. */
static u64 next_quantum(void)
{
	u64 q = passes_made(), slice = G->slice_tsc * (by_itself() ? HEARS : 1), took = slice_began ? (sf_tsc() - slice_began) * 16 : 0;
	if (!took || slice < 16)
		return app.quantum;
	u64 times = took / slice, most = app.quantum * (app.spins ? 2 : 16);
	q = times ? q * 16 / times : q * 16;
	q = q > most ? most : q;
	return q < QUANTUM_MIN ? QUANTUM_MIN : q > QUANTUM_MAX ? QUANTUM_MAX : q;
}

/* It waits for a word of several processes, and a wake has counted it (parked.c). */
static int is_granted(u32 i)
{
	return sf_thread_at(i)->nr == NR_futex && sf_parked_granted(i);
}

static const struct sf_result *act_thread(struct sf_event *e, void *arg)
{
	struct look_thread *l = arg;
	u16 woken[SF_THREADS_MAX];
	u32 n = 0, k = 0;
	int looked = look_thread(e, l);
	if (!looked && !(l->waits && sf_signal_pending()))
		return NULL;
	u64 now = sf_now();
	struct sf_result *res = sf_result_begin(e, (s64)now);
	if (!looked) {
		sf_signal_attach(res, 0);
		sf_result_end(res);
		return res;
	}
	for (u32 i = 0; i < sf_thread_top(); i++) {
		const struct sf_thread *t = sf_thread_at(i);
		int ready = 0;
		for (; k < set_n && whose[k] <= i; k++)
			ready |= whose[k] == i && set[k].revents;
		if (!parked(i))
			continue;
		if (t->deadline && t->deadline <= now)
			woken[n++] = (u16)(i | OVER);
		else if (ready || (t->retry && (t->retry <= now || is_granted(i))))
			woken[n++] = (u16)i;
	}
	if (n)
		sf_result_bytes(res, woken, n * sizeof *woken);
	if (l->yields) {
		res->aux = next_quantum();
		res->flags |= (u16)sf_settle_due();
		if (sf_signal_pending())
			res->flags |= SF_R_MORE;
	}
	sf_result_end(res);
	return res;
}

/* In a pair the leader's clock is another host's. */
static s64 ahead; /* of that one is this one, and of what has passed since it was looked at */
static int ahead_known;

/* The leader's time, a moment ago. */
void sf_threads_heard(u64 now)
{
	ahead = (s64)(sf_now() - now);
	ahead_known = 1;
}

/* The follower leads from here on: what its threads wait for is a time of the other clock. One that nobody can tell is over. */
void sf_threads_lead(void)
{
	for (u32 i = 0; app.threads && i < sf_thread_top(); i++) {
		struct sf_thread *t = sf_thread_at(i);
		if (t->deadline)
			t->deadline = ahead_known && (s64)t->deadline + ahead > 0 ? (u64)((s64)t->deadline + ahead) : 1;
		if (t->retry)
			t->retry = 1;
	}
}

static int done_thread(struct sf_event *e, const struct sf_result *res, void *arg)
{
	struct look_thread *l = arg;
	(void)e;
	l->now = (u64)res->ret;
	if (app.threads)
		T->heard = l->now;
	if (unlikely(G->options & SF_O_PAIR) && me.role == SF_FOLLOWER)
		sf_threads_heard(l->now);
	l->n = 0;
	if (res->flags & SF_R_SIGNAL) {
		memcpy(&l->info, PAYLOAD + res->aux, sizeof l->info);
	} else {
		l->n = res->out_len / sizeof *l->woken;
		ASSERT(l->n <= SF_THREADS_MAX);
		memcpy(l->woken, PAYLOAD + res->out_off, l->n * sizeof *l->woken);
	}
	for (u32 i = 0; i < l->n; i++) {
		struct sf_thread *t = sf_thread_at(l->woken[i] & ~OVER);
		if (t->state == SF_TH_FUTEX) {
			t->regs.rax = (u64)-ETIMEDOUT;
			t->deadline = 0;
			t->pi = 0;
		}
		sf_thread_ready(t); /* a call is made again, and finds its time over by itself */
	}
	if (l->yields) {
		begin_slice(res->aux);
		if (app.threads > 1) {
			app.turn |= SF_TURN_GIVE | SF_TURN_SPENT;
			app.yields = 1;
		}
	}
	return 0;
}

/* Where nobody runs, other processes have their turn (domain.c). */
static void agreed_thread(struct sf_event *e, struct sf_regs *r, void *arg)
{
	const struct look_thread *l = arg;
	(void)e, (void)r;
	if (unlikely(app.domain) && l->waits)
		sf_baton_give();
}

static const struct sf_step looks = { claim_thread, agreed_thread, act_thread, NULL, done_thread, 0 };

static u64 last_look; /* the leader's */

/* Leader: what an event's result is to bring along, so that others come to their turn. */
static COLD u32 due_thread(void)
{
	u64 now = sf_tsc();
	u32 flags = slice_began && now - slice_began > G->slice_tsc && sf_threads_may_wake() ? SF_R_TURN | SF_R_LOOK : 0;
	if (flags)
		slice_began = last_look = now;
	if (flags || now - last_look < LOOK_TICKS)
		return flags;
	for (u32 i = 0; i < sf_thread_top(); i++) {
		const struct sf_thread *t = sf_thread_at(i);
		if (parked(i) && (t->state == SF_TH_CALL || t->deadline)) {
			last_look = now;
			return SF_R_LOOK;
		}
	}
	return 0;
}

u32 sf_threads_due(void)
{
	return unlikely(app.threads > 1) ? due_thread() : 0;
}

/* Leader: the launcher has found it computing, and asks whether anybody waits for his turn. */
void sf_threads_asked(void)
{
	static const u64 at_once[2];
	u32 asked = load(&G->look_asked);
	G->look_heard = asked;
	if (app.current == SF_NOBODY)
		return;
	int waits = sf_baton_wanted() || sf_settle_due() || (app.threads && next() != SF_NOBODY);
	if (!waits && app.threads > 1) {
		gather();
		waits = (earliest && earliest <= sf_now()) || sys6(NR_ppoll, set, set_n, at_once, 0, 8, 0) > 0;
	}
	if (!waits)
		return;
	store(&G->look_found, asked);
	__atomic_fetch_add(&G->launcher_bell, 1, __ATOMIC_SEQ_CST);
	sys3(NR_futex, &G->launcher_bell, 1 /* FUTEX_WAKE */, 1);
}

/* 1: it is taken out, and to be done now. */
static int takes(u32 what)
{
	const u32 had = app.turn & what;
	app.turn &= ~what;
	return had != 0;
}

static void take_brought(struct sf_regs *r)
{
	if (takes(SF_TURN_MORE))
		sf_more_signals(r);
	if (takes(SF_TURN_SETTLE))
		sf_settle(r);
	if (takes(SF_TURN_EPOCH))
		sf_epoch(r);
	if (takes(SF_TURN_LOOK))
		sf_threads_look(r);
}

/* All replicas have met in the middle of a computation, so that others have their turn, threads or processes, or a signal is
 * heard (align.c). From here on they count how often they come by the payloads planted there, and find the next such place by
 * themselves. */
void sf_threads_preempt(struct sf_regs *r)
{
	count_passes(1);
	begin_slice(QUANTUM);
	if (app.threads > 1)
		app.turn |= SF_TURN_GIVE | SF_TURN_LOOK | SF_TURN_SPENT;
	sf_baton_due();
	if (app.map_settled)
		app.turn |= SF_TURN_SETTLE;
	take_brought(r);
}

/* The budget is used up, or the lock is reached that the slice is to end at. 1: the slice goes on, to a lock.
 *
 * Which payload a budget ends at says the loop. Where each of them lies between a lock and its release, whoever waits for the
 * lock never gets it. So half of the slices, by the number of the event that their end will be, go on until their thread is about
 * to take a lock: one after the other, since it may own others there. Who does not come by it within as many passes again
 * gives way all the same, and leaves that lock out from then on. Whoever begins the event again decides as before. */
static int aims(void)
{
	const u64 lot = sf_mix(1, me.next);
	if (tls.aim && !tls.budget)
		app.cold |= 1ull << ((tls.aim - 1) & 63);
	if (tls.aim || !app.locks || (lot & 1))
		return 0;
	if (!(lot >> 1 & (TRIES_AGAIN - 1)))
		app.cold = 0;
	for (u32 k = 0; k < app.locks; k++) {
		app.aimed = (app.aimed + 1) % app.locks;
		if (app.cold >> app.aimed & 1)
			continue;
		tls.aim = app.aimed + 1;
		tls.budget = app.quantum;
		return 1;
	}
	return 0;
}

/* What a result brings along (SF_R_*), on the way back to the program. */
void sf_turn_brings(u32 flags)
{
	static const u32 what[][2] = { { SF_R_MORE, SF_TURN_MORE },
				       { SF_R_SETTLE, SF_TURN_SETTLE },
				       { SF_R_EPOCH, SF_TURN_EPOCH },
				       { SF_R_TURN, SF_TURN_GIVE },
				       { SF_R_LOOK, SF_TURN_LOOK } };
	for (u32 i = 0; i < sizeof what / sizeof *what; i++)
		if (flags & what[i][0])
			app.turn |= what[i][1];
}

/* The running thread has come by a planted payload for the last time in its slice, equally in all replicas. */
void sf_threads_yield(struct sf_regs *r)
{
	struct look_thread l = { .yields = 1 };
	struct sf_event e;
	if (app.spawn.active) {
		tls.budget = app.quantum;
		return;
	}
	if (by_itself() && app.counts > DEAF_AFTER) {
		app.quantum = tls.budget = 0;
		count_passes(0);
		return;
	}
	if (!by_itself() && aims())
		return;
	me.doing = SF_D_ENTROPY;
	me.doing_desc = SF_DESC_YIELD;
	s32 flags = sf_event(&e, r, &looks, &l);
	app.counts = flags & SF_R_MORE || !by_itself() ? 1 : app.counts + 1; /* once, whoever begins the event again */
	sf_turn_brings((u32)flags);
	sf_baton_due();
	take_brought(r);
}

/* While a thread runs. */
void sf_threads_look(struct sf_regs *r)
{
	struct look_thread l = { .waits = 0 };
	struct sf_event e;
	me.doing = SF_D_ENTROPY;
	me.doing_desc = SF_DESC_LOOK;
	sf_event(&e, r, &looks, &l);
}

/* Nobody runs: what every thread blocks is blocked. */
static void block_common(void)
{
	u64 m = ~0ull;
	for (u32 i = 0; i < sf_thread_top(); i++)
		if (sf_thread_at(i)->state != SF_TH_FREE)
			m &= blocks(sf_thread_at(i));
	masks(m);
}

/* The thread that a timer was made for; else the kernel's choice: the first thread if it may, else any. */
static u32 receiver(const struct sf_siginfo *info)
{
	const struct sf_thread *t = timers_thread(info);
	for (u32 i = 0; i < sf_thread_top(); i++)
		if (t ? t == sf_thread_at(i) : sf_thread_at(i)->state != SF_TH_FREE && !(blocks(sf_thread_at(i)) & BIT(info->signo)))
			return i;
	ASSERT(0);
	return 0;
}

static int others_ready(void)
{
	return next() != SF_NOBODY;
}

/* On the way back to the program: what comes before it, and who goes on there? */
void sf_turn(struct sf_regs *r)
{
	struct look_thread l = { .waits = 1 };
	struct sf_event e;
	take_brought(r);
	if (!app.turn)
		return;
	if (unlikely(app.threads && T->fatal))
		sf_die_agreed(r, (u32)T->fatal);
	if (app.current != SF_NOBODY) {
		struct sf_thread *t = sf_thread_now();
		int gives = (app.turn & SF_TURN_GIVE) != 0;
		if (t->state == SF_TH_RUNS && (!gives || !others_ready())) {
			app.turn = app.spent = 0;
			take_signals(r);
			return;
		}
		if (t->state == SF_TH_RUNS) {
			sf_thread_ready(t);
			if ((app.turn & SF_TURN_SPENT) && !app.spins)
				t->since += BEHIND;
		}
		leave(r);
	}
	app.turn = SF_TURN_GIVE;
	me.doing = SF_D_ENTROPY;
	me.doing_desc = SF_DESC_TURN;
	for (;;) {
		u32 k = next();
		if (k != SF_NOBODY) {
			if (unlikely(app.domain))
				sf_baton_back(r);
			enter_thread(k, r);
			app.turn = 0;
			take_signals(r);
			return;
		}
		block_common();
		if (unlikely(app.domain))
			sf_shared_hand_over(r);
		if (!(sf_event(&e, r, &looks, &l) & SF_R_SIGNAL))
			continue;
		/* A signal to the program finds all its threads waiting. */
		k = receiver(&l.info);
		struct sf_thread *t = sf_thread_at(k);
		interrupt(t, l.info.signo, l.now);
		app.wait_mask = t->wait_mask;
		app.has_wait_mask = t->has_wait_mask;
		enter_thread(k, r);
		app.turn = 0;
		sf_deliver(r, &l.info);
		if (unlikely(app.domain))
			sf_baton_back(r);
		return;
	}
}
