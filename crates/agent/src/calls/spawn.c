/* Spawn: child processes (fork, vfork, clone, clone3). A process is a replica group of its own.
 *
 *   vfork:  all agree ──► leader clones ──► the child makes the leader's calls, in the leader's memory
 *                                           followers run on as the child, in place
 *           exec or exit ──► the leader comes back, publishes SF_R_SPAWNED for the event that the child has
 *                            left by, and every replica goes on as the parent: sf_spawn_goes_on
 *   fork:   all agree ──► leader asks for a group, forks, tells the number ──► each follower forks itself
 *                         each copy maps the new group's memory in the place of the old one's, and waits
 *
 * What the child stores before exec is in the parent's memory, as vfork(2) has it: posix_spawn(3) finds its errno
 * there. Nothing is copied, and no group is made for a child that only calls exec.
 *
 * Invariants
 *  1. A leader is a child of the leader that made it; all others are children of the launcher and die with it.
 *  2. Followers are copied from followers: a latent error of the leader does not spread.
 *  3. While a child stands in for the leader, app.spawn holds what the parent goes on with, equally in all replicas.
 *
 * A child of vfork that has not called exec makes copies alone: its vfork is a fork, which POSIX allows. So at most one child
 * stands in for a leader, and its own children are the kernel's children of it.
 *
 * Not covered: threads (CLONE_VM without CLONE_VFORK), new namespaces (EPERM), a TLS of the child's own, a copy of a child of vfork
 * that shares memory; memory checks and snapshots while a child of vfork has not called exec.
 * See vfork(2), clone(2), prctl(2) PR_SET_CHILD_SUBREAPER; docs/concepts/replication.md, "Children".
 */
#include "agent.h"
#include <asm/errno.h>

#define CLONE_VM 0x100ull
#define CLONE_FS 0x200ull
#define CLONE_FILES 0x400ull
#define CLONE_SIGHAND 0x800ull
#define CLONE_PIDFD 0x1000ull
#define CLONE_PTRACE 0x2000ull
#define CLONE_VFORK 0x4000ull
#define CLONE_PARENT 0x8000ull
#define CLONE_THREAD 0x10000ull
#define CLONE_NEWNS 0x20000ull
#define CLONE_PARENT_SETTID 0x100000ull
#define CLONE_CHILD_CLEARTID 0x200000ull
#define CLONE_UNTRACED 0x800000ull
#define CLONE_CHILD_SETTID 0x1000000ull
#define CLONE_NEWUSER 0x10000000ull
#define CLONE_IO 0x80000000ull
#define CLONE_CLEAR_SIGHAND 0x100000000ull
#define CSIGNAL 0xffull
/* CLONE_NEWTIME, which clone(2) cannot ask for; NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. */
#define NAMESPACES (0x80ull | 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000)
/* No tracer is there, and the scheduler of disks is told of the leader alone. */
#define OF_NO_EFFECT (CLONE_PTRACE | CLONE_UNTRACED | CLONE_IO)
#define OF_VFORK (CLONE_VM | CLONE_VFORK | CLONE_CLEAR_SIGHAND | CLONE_PIDFD | OF_NO_EFFECT)
#define OF_FORK (CLONE_PIDFD | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID | CLONE_CLEAR_SIGHAND | OF_NO_EFFECT)

#define WCLONE 0x80000000u
#define CLOSE_RANGE_UNSHARE 2
#define PR_SET_PDEATHSIG 1
#define SIG_IGN 1
#define SHM_REMAP 040000u
#define O_CLOEXEC 02000000u

/* How often a copy looks whether it has become the launcher's child: its parent ends at once. */
#define LOOKS 1000000

/* ---- what is asked for ---- */

struct asked {
	u64 flags, signal, stack, child_tid, parent_tid, pidfd;
};

/* 0: the arguments cannot be read. */
static int what_is_asked(u32 nr, const u64 a[6], struct asked *k)
{
	u64 c[11] = { 0 };
	*k = (struct asked){ .signal = 17 /* SIGCHLD */ };
	switch (nr) {
	case NR_vfork: k->flags = CLONE_VM | CLONE_VFORK; return 1;
	case NR_clone: *k = (struct asked){ a[0] & ~CSIGNAL, a[0] & CSIGNAL, a[1], a[3], a[2], a[2] }; return 1;
	case NR_clone3:
		if (a[1] < 64 || a[1] > sizeof c || sf_user_bytes(c, a[0], a[1]) < 0)
			return 0;
		*k = (struct asked){ c[0], c[4], c[5] ? c[5] + c[6] : 0, c[2], c[3], c[1] };
		return !c[8] && !c[9] && !c[10]; /* numbers and control groups */
	}
	return 1;
}

static u8 class(u32 nr, const u64 a[6])
{
	struct asked k;
	if (!what_is_asked(nr, a, &k) || ((k.flags & CLONE_PIDFD) && (G->options & SF_O_PAIR)))
		return SF_REFUSE;
	if (k.flags & CLONE_VM)
		return (k.flags & CLONE_VFORK) && !(k.flags & ~OF_VFORK) ? SF_COMMIT : SF_REFUSE;
	return k.flags & ~OF_FORK ? SF_REFUSE : SF_COMMIT;
}

/* Of a clone that is refused: those of its flags for which it is, or with SF_LEFT_OUT those that it would need. 0: it is for something else. */
u64 sf_spawn_odd(u32 nr, const u64 a[6])
{
	struct asked k;
	what_is_asked(nr, a, &k);
	if (k.flags & CLONE_THREAD)
		return sf_thread_odd(k.flags);
	if ((k.flags & CLONE_PIDFD) && (G->options & SF_O_PAIR))
		return CLONE_PIDFD;
	if (!(k.flags & CLONE_VM))
		return k.flags & ~OF_FORK;
	return (k.flags & ~OF_VFORK) | (k.flags & CLONE_VFORK ? 0 : CLONE_VM);
}

/* What the kernel answers with EINVAL, whoever asks (clone(2), "ERRORS"). */
static int contradicts(u64 flags)
{
	static const u64 never[] = { CLONE_FS | CLONE_NEWNS, CLONE_FS | CLONE_NEWUSER, CLONE_SIGHAND | CLONE_CLEAR_SIGHAND };
	for (u32 i = 0; i < sizeof never / sizeof *never; i++)
		if ((flags & never[i]) == never[i])
			return 1;
	return ((flags & CLONE_SIGHAND) && !(flags & CLONE_VM)) || ((flags & CLONE_THREAD) && !(flags & CLONE_SIGHAND));
}

const struct sf_call *sf_spawn_row(const struct sf_call *c, struct sf_call *own, u32 nr, const u64 a[6])
{
	struct asked k;
	*own = *c;
	own->class = class(nr, a);
	if (!what_is_asked(nr, a, &k) || !(contradicts(k.flags) || (k.flags & NAMESPACES)))
		return own;
	own->class = SF_DENY;
	own->err = contradicts(k.flags) ? EINVAL : EPERM; /* as unshare(2) does */
	return own;
}

/* Whether a call makes a copy, which has memory in common with its parent where that is mapped shared. */
static int shares(u32 nr, const u64 a[6])
{
	struct asked k;
	return !app.spawn.active && what_is_asked(nr, a, &k) && (!(k.flags & CLONE_VM) || (G->options & SF_O_PAIR)) &&
	       !(G->options & (SF_O_PROFILE | SF_O_SECCOMP | SF_O_PRIV_NS));
}

/* Before a child is made. 1: start the call again. */
int sf_spawn_before(struct sf_regs *r, u32 nr, const u64 a[6])
{
	if (shares(nr, a))
		return sf_domain_before_fork(r) || sf_epoch_before_fork(r);
	return app.map_files && !(G->options & (SF_O_PROFILE | SF_O_SECCOMP | SF_O_PRIV_NS | SF_O_PAIR)) && sf_domain_of_own(r);
}

/* ---- copies that are the launcher's children ---- */

/* 0 in the copy; its number, or an errno. `share`: CLONE_FILES, CLONE_FS of the copy. */
s64 sf_orphan(u64 share)
{
	static struct sf_orphan o;
	memset(&o, 0, sizeof o);
	o.outer.flags = CLONE_VM | CLONE_VFORK | share;
	o.inner.flags = share;
	u64 token = tls.secret ^ ~(u64)NR_clone3;
	tls.token = token;
	tls.selector = 1;
	s64 between = sf_orphan_gate(&o, token);
	if (between < 0)
		return between;
	if (between > 0) {
		sf_raw6(NR_wait4, (u64)between, 0, WCLONE, 0, 0, 0);
		return o.pid;
	}
	for (u32 i = 0; sf_raw6(NR_getppid, 0, 0, 0, 0, 0, 0) != sf_boot.launcher_pid; i++) {
		if (i > LOOKS)
			sf_raw6(NR_exit_group, 121, 0, 0, 0, 0, 0);
		sf_raw6(NR_sched_yield, 0, 0, 0, 0, 0, 0);
	}
	sf_raw6(NR_prctl, PR_SET_PDEATHSIG, 9, 0, 0, 0, 0);
	if (sf_raw6(NR_getppid, 0, 0, 0, 0, 0, 0) != sf_boot.launcher_pid)
		sf_raw6(NR_exit_group, 0, 0, 0, 0, 0, 0);
	return 0;
}

/* ---- vfork ---- */

static u8 vectors[16384] __attribute__((aligned(64)));
/* The leader's own, while a child stands in for it. */
static struct {
	struct sf_siginfo pending[SF_HAND_MAX];
	u32 n;
	u64 wrote;
} parent;

static void remember(const struct sf_regs *r, const struct asked *k)
{
	struct sf_spawn *s = &app.spawn;
	s->active = 1;
	s->apart = 0;
	s->signal = (u32)k->signal;
	s->pidfd = -1;
	s->regs = *r;
	s->mask = app.mask;
	s->wait_mask = app.wait_mask;
	s->has_wait_mask = app.has_wait_mask;
	s->alt_sp = app.alt_sp;
	s->alt_size = app.alt_size;
	s->alt_flags = app.alt_flags;
	s->pdeathsig = app.pdeathsig;
	s->threads = app.threads;
	app.threads = 0; /* none of them runs meanwhile */
	memcpy(s->action, app.action, sizeof s->action);
	s->kept = app.kept;
	sf_fp_save(vectors);
}

static void recall(void)
{
	struct sf_spawn *s = &app.spawn;
	app.mask = s->mask;
	app.wait_mask = s->wait_mask;
	app.has_wait_mask = s->has_wait_mask;
	app.alt_sp = s->alt_sp;
	app.alt_size = s->alt_size;
	app.alt_flags = s->alt_flags;
	app.pdeathsig = s->pdeathsig;
	app.done_of_call = 0;
	app.threads = s->threads;
	memcpy(app.action, s->action, sizeof s->action);
	app.kept = s->kept;
	s->active = 0;
}

static void stand_in_spawn(u32 pid)
{
	store(&G->stand_in_inv, ~pid);
	store(&G->stand_in, pid);
}

static void no_handlers(void)
{
	for (int s = 1; s <= SF_SIGNALS; s++)
		if (app.action[s].handler > SIG_IGN) {
			memset(&app.action[s], 0, sizeof app.action[s]);
			sf_kernel_action(s);
		}
}

/* The child's first steps, in every replica. */
NORETURN static void as_child_spawn(struct sf_regs *r, const struct asked *k)
{
	if (k->flags & CLONE_CLEAR_SIGHAND)
		no_handlers();
	app.pdeathsig = 0;
	r->rax = 0;
	if (k->stack)
		r->rsp = k->stack;
	sf_leave(r);
}

static const struct sf_result *publish(struct sf_event *e, s64 ret, u64 aux)
{
	struct sf_result *res = sf_result_begin(e, ret);
	res->aux = aux;
	sf_result_end(res);
	return res;
}

/* A follower waits for the leader's word; whoever is made anew meanwhile starts the event again. */
static const struct sf_result *leaders_word(struct sf_event *e)
{
	const struct sf_result *done = sf_result_wait(e);
	if (!done)
		sf_stand_again(me.regs);
	return done;
}

NORETURN static void returns(struct sf_event *e, const struct sf_result *done, struct sf_regs *r, s64 ret)
{
	sf_event_done(e, done);
	r->rax = (u64)ret;
	sf_leave(r);
}

/* A descriptor of the child, which the leader has: its number is everybody's. */
static s32 pidfd;

static void note_pidfd(const struct asked *k, s32 fd)
{
	if (k->flags & CLONE_PIDFD)
		sf_user_put(k->pidfd, &fd, 4);
}

/* Leader: a child that stands in for it from here on. Returns in the child alone, which must not outlive a parent that is killed, until
 * exec; else why there is none. */
static s64 makes_a_stand_in(u64 flags)
{
	memcpy(parent.pending, me.pending, sizeof parent.pending);
	parent.n = me.pending_n;
	parent.wrote = me.wrote;
	sf_signals_hold_all();
	const s64 own = sf_raw6(NR_getpid, 0, 0, 0, 0, 0, 0);
	const u64 call[7] = { NR_clone, CLONE_VM | CLONE_VFORK | flags, 0, (u64)&pidfd, 0, 0, 0 };
	const u64 token = tls.secret ^ ~call[0];
	tls.token = token;
	tls.selector = 1;
	const s64 pid = sf_spawn_gate(call, token);
	if (pid < 0)
		return pid;
	sf_raw6(NR_prctl, PR_SET_PDEATHSIG, 9, 0, 0, 0, 0);
	if (sf_raw6(NR_getppid, 0, 0, 0, 0, 0, 0) != own)
		sf_raw6(NR_exit_group, 0, 0, 0, 0, 0, 0);
	stand_in_spawn((u32)sf_raw6(NR_getpid, 0, 0, 0, 0, 0, 0));
	me.pending_n = 0;
	if (G->options & SF_O_SUD)
		sf_raw6(NR_prctl, 59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, 0, 0, (u64)&tls.selector, 0);
	tls.selector = 1;
	return 0;
}

NORETURN static void spawn(struct sf_event *e, struct sf_regs *r, const struct asked *k)
{
	const struct sf_result *done;
	if (me.slot != 0) {
		done = leaders_word(e);
		if (done->ret < 0)
			returns(e, done, r, done->ret);
		remember(r, k);
		if (k->flags & CLONE_PIDFD)
			app.spawn.pidfd = (s32)done->aux;
		note_pidfd(k, (s32)done->aux);
		sf_event_done(e, done);
		as_child_spawn(r, k);
	}
	remember(r, k);
	const s64 pid = makes_a_stand_in(k->signal | (k->flags & CLONE_PIDFD));
	if (pid < 0) {
		recall();
		done = publish(e, pid, 0);
		sf_signals_release();
		returns(e, done, r, pid);
	}
	if (k->flags & CLONE_PIDFD)
		app.spawn.pidfd = pidfd;
	note_pidfd(k, pidfd);
	sf_event_done(e, publish(e, 0, (u32)pidfd));
	sf_signals_release();
	as_child_spawn(r, k);
}

/* The leader again: its child has left its memory, by exec, by its own end, or because somebody killed it. Then the
 * replicas are anywhere in its code, and come to their next event: that is the one it has left by. */
void sf_spawned(s64 pid)
{
	static struct sf_regs r;
	u32 others = G->live & ~1u;
	stand_in_spawn(0);
	memcpy(me.pending, parent.pending, sizeof parent.pending);
	me.pending_n = parent.n;
	me.wrote = parent.wrote;
	me.guard = NULL;
	me.interruptible = 0;
	me.own_event = 0;
	tls.abort = 0;
	struct sf_event e = { .kind = SF_K_SYSCALL, .lockstep = 1 };
	if (!sf_alone()) {
		if (RESULT(me.next - me.base)->seq == me.next)
			me.next++; /* killed before it had noted what it had published */
		struct sf_claim_record *own = CLAIM(0, me.next);
		if (own->seq != me.next && others) {
			const struct sf_claim_record *o = CLAIM(__builtin_ctz(others), me.next);
			while (load(&o->seq) != me.next && load(&G->alarm) == SF_A_QUIET)
				sys0(NR_sched_yield);
			if (o->kind != SF_K_SYSCALL)
				sf_end(SF_E_REFUSED, SF_NR_SPAWN_DIED, 0, NULL);
			sf_claim_as(o);
		}
		e.state = own->state;
		e.bytes.a = own->bytes[0];
		e.nr = own->nr;
	}
	e.seq = me.next;
	if (app.spawn.pidfd >= 0 && pidfd != app.spawn.pidfd) { /* of a child that was made anew */
		sf_raw6(NR_dup3, (u64)pidfd, (u64)app.spawn.pidfd, O_CLOEXEC, 0, 0, 0);
		sf_raw6(NR_close, (u64)pidfd, 0, 0, 0, 0, 0);
	}
	recall();
	r = app.spawn.regs;
	sf_fp_load(vectors);
	me.regs = &r;
	me.doing = SF_D_SYSCALL;
	struct sf_result *res = sf_result_begin(&e, pid);
	res->flags |= SF_R_SPAWNED;
	sf_result_end(res);
	sf_signals_release();
	returns(&e, res, &r, pid);
}

/* A follower: the child is another process from here on, and this is the parent again. */
void sf_spawn_goes_on(struct sf_event *e, const struct sf_result *done)
{
	static struct sf_regs r;
	recall();
	for (int s = 1; s <= SF_SIGNALS; s++)
		sf_kernel_action(s);
	r = app.spawn.regs;
	sf_fp_load(vectors);
	returns(e, done, &r, done->ret);
}

/* Agreed: the child ends. Its parent goes on. */
NORETURN static void child_exits(struct sf_event *e, s64 status)
{
	if (me.slot == 0)
		for (;;)
			sys1(NR_exit_group, status);
	sf_spawn_goes_on(e, leaders_word(e));
}

/* A follower whose child dies by a signal that all have agreed on: the parent goes on at the next event. */
void sf_spawn_dies(void)
{
	struct sf_event e = { .seq = me.next, .nr = NR_exit_group, .kind = SF_K_SYSCALL, .lockstep = 1 };
	sf_arrive(&e, me.regs);
	sf_spawn_goes_on(&e, leaders_word(&e));
}

/* ---- the leader is killed, and the child that stands in for it with it ---- */

void sf_spawn_send(void)
{
	if (unlikely(app.spawn.active))
		memcpy((void *)(SF_SHARED + SF_OFF_PARENT_FP), vectors, sf_fp_bytes());
}

/* The next leader has what its parent has in the kernel. Where the child had something else, that is lost with it: an errno. */
s64 sf_spawn_receive(void)
{
	if (app.spawn.apart)
		return -ECHILD;
	memcpy(vectors, (const void *)(SF_SHARED + SF_OFF_PARENT_FP), sf_fp_bytes());
	pidfd = app.spawn.pidfd;
	me.childless = 1;
	return 0;
}

/* Goes on as a child of this process, at the event where the last one was. */
void sf_spawn_again(void)
{
	me.childless = 0;
	if (makes_a_stand_in(app.spawn.signal | (app.spawn.pidfd >= 0 ? CLONE_PIDFD : 0)) < 0)
		sf_end(SF_E_REFUSED, SF_NR_SPAWN_DIED, 0, NULL);
	sf_signals_release();
}

/* Whether a call leaves the caller's kernel state as it is: the memory is the parent's as well, and the agent keeps handlers and masks. */
static int is_of_both(const struct sf_call *c, u32 nr)
{
	switch (c->handler) {
	case SF_H_sigaction:
	case SF_H_sigprocmask:
	case SF_H_sigaltstack:
	case SF_H_sigreturn:
	case SF_H_mmap:
	case SF_H_munmap:
	case SF_H_mremap:
	case SF_H_mprotect:
	case SF_H_brk:
	case SF_H_madvise:
	case SF_H_exec:
	case SF_H_exit:
	case SF_H_exit_group: return 1;
	}
	return c->class == SF_QUERY || c->class == SF_DENY || nr == NR_read || nr == NR_nanosleep || nr == NR_clock_nanosleep ||
	       nr == NR_futex;
}

/* ---- fork ---- */

/* A copy that has only the memory of the group that it was copied from says there why, and waits to be ended: an end of its
 * own would look like the program's. */
NORETURN static void has_no_memory(u64 id, s64 error)
{
	static const s64 look[2] = { 0, 200 * 1000 * 1000 };
	store(&G->unmapped, (u64)-error << 32 | (u32)id);
	__atomic_fetch_add(&G->launcher_bell, 1, __ATOMIC_SEQ_CST);
	sf_raw6(NR_futex, (u64)&G->launcher_bell, 1, 1, 0, 0, 0);
	while (sf_raw6(NR_kill, (u64)sf_boot.launcher_pid, 0, 0, 0, 0, 0) != -ESRCH)
		sf_raw6(NR_nanosleep, (u64)look, 0, 0, 0, 0, 0);
	for (;;)
		sf_raw6(NR_exit_group, 121, 0, 0, 0, 0, 0);
}

/* The group's memory, in the place of the one that this was copied from: by its number, since a program that has given up
 * rights may not open the launcher's descriptors. */
static void map_group(u64 id)
{
	const s64 at = sf_raw6(NR_shmat, id, SF_SHARED, SHM_REMAP, 0, 0, 0);
	if ((u64)at != SF_SHARED)
		has_no_memory(id, at);
}

/* A copy of a replica becomes one of a new group, which begins at its first event: what this process has from its parent and does
 * not go on with. */
static void forget_parent(void)
{
	me.next = me.base = 1;
	me.out = me.reset_pending = 0;
	me.pending_n = 0;
	me.made = me.retried = me.wrote = me.queries = 0;
	me.snapshot_pid = 0;
	me.snapshot_known = me.snapshot_remade = 0;
	me.raised = me.restarted = me.poison = me.heard = me.hear = me.seek = 0;
	me.fresh = me.reborn = me.renumbered = me.strays = 0;
	me.holds = me.courteous = me.spent = 0;
	me.together_until = 0; /* the launcher gives it a core */
	me.ready = 0;
	me.own_event = 0;
	app.own_events = 0;
	app.done_of_call = 0;
	app.pdeathsig = 0;
	sf_shared_unheld();
	sf_fifo_born();
	memset(app.kept.timer, 0, sizeof app.kept.timer);
}

/* The launcher says when the group is complete. */
static void wait_for_group(struct sf_replica *own)
{
	store(&own->phase, SF_P_RUNNING);
	__atomic_fetch_add(&G->launcher_bell, 1, __ATOMIC_SEQ_CST);
	sys3(NR_futex, &G->launcher_bell, 1, 1);
	static const s64 look[2] = { 0, 200 * 1000 * 1000 };
	while (!load(&G->go)) {
		sys4(NR_futex, &G->go, 0, 0, look);
		if (sys2(NR_kill, sf_boot.launcher_pid, 0) == -ESRCH)
			sys1(NR_exit_group, 121);
	}
}

NORETURN static void begin(struct sf_regs *r, const struct asked *k, u64 fd, s64 pid)
{
	const int pair = (G->options & SF_O_PAIR) != 0; /* two processes on two hosts, each a leader's child */
	me.tables_apart = !pair;
	if (me.tables_apart && me.slot != 0)
		sf_raw6(NR_close_range, 0, ~0u, CLOSE_RANGE_UNSHARE, 0, 0, 0);
	map_group(fd);
	me.regs = r;
	forget_parent();
	sf_log_anew();
	sf_flip_arm();
	me.last_epoch_tsc = sf_tsc();
	me.epoch_gap = G->epoch_tsc;
	struct sf_replica *own = &G->slot[me.slot];
	own->init_pid = (s32)sf_raw6(NR_getpid, 0, 0, 0, 0, 0, 0);
	if (me.slot == 0 || pair) {
		G->base = 1;
		G->leader_pid = me.slot == 0 ? (u32)own->init_pid : (u32)pid;
		sf_domain_tell();
		store(&G->settled, app.map_settled);
	} else
		me.parent = sf_boot.launcher_pid;
	if (pair) {
		sf_pair_born();
		if (me.slot != 0)
			store(&own->done, me.next); /* a log that ends before its first event is done */
	}
	sf_arm();
	if (pair)
		sf_tracking_born();
	if (app.spawn.active) { /* the parent that waits is none of this process's, which has the thread that called vfork */
		app.spawn.active = 0;
		app.threads = app.spawn.threads;
	}
	if (k->flags & CLONE_CLEAR_SIGHAND)
		no_handlers();
	app.clear_tid = k->flags & CLONE_CHILD_CLEARTID ? k->child_tid : 0;
	app.robust = 0;
	if (k->flags & CLONE_CHILD_SETTID)
		sf_user_put(k->child_tid, &(s32){ me.slot == 0 ? own->init_pid : (s32)pid }, 4);
	const int again = pair && sf_first_snapshot();
	if (!again)
		wait_for_group(own);
	sf_threads_keep_current();
	if (!again)
		sf_kernel_mask();
	r->rax = 0;
	if (k->stack)
		r->rsp = k->stack;
	if (app.domain)
		sf_baton(r);
	sf_leave(r);
}

/* A site that joins a program of several processes: a child that is nobody, as this process is until it gets what it is to become
 * (join.c). An orphan is the child of the launcher, which is its first process's parent: it has come to be that on the survivor. 0 in
 * the child; else its number, or an errno. */
s64 sf_spawn_nobody(u64 group, u64 number)
{
	const int orphan = (number & SF_ORPHAN) != 0;
	const struct {
		u64 flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
	} ca = { .flags = orphan ? CLONE_PARENT : 0, .exit_signal = orphan ? 0 : 17 /* SIGCHLD */ };
	const u32 armed = tls.selector;
	const s64 own = sf_raw6(NR_clone3, (u64)&ca, sizeof ca, 0, 0, 0, 0);
	tls.selector = armed;
	if (own > 0 && orphan)
		sf_pair_knows((s32)number, (s32)own);
	else if (own > 0)
		sf_pair_bore((s32)number, (s32)own);
	if (own != 0)
		return own;
	map_group(group);
	forget_parent();
	sf_pair_born();
	sf_log_anew();
	me.fresh = 1;
	me.regs = &me.fault_regs;
	G->base = 1;
	G->slot[me.slot].init_pid = (s32)sf_raw6(NR_getpid, 0, 0, 0, 0, 0, 0);
	sf_arm();
	sf_tracking_born();
	return 0;
}

static void note_child(const struct asked *k, s64 pid)
{
	if (k->flags & CLONE_PARENT_SETTID)
		sf_user_put(k->parent_tid, &(s32){ (s32)pid }, 4);
}

struct copied {
	u64 flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

/* The secondary of a pair: a child of its own, under the number that the primary's has. */
NORETURN static void fork_alike(struct sf_event *e, struct sf_regs *r, const struct asked *k)
{
	const struct sf_result *done = leaders_word(e);
	const s64 pid = done->ret;
	if (pid > 0 && me.role == SF_FOLLOWER) {
		struct copied ca = { .exit_signal = k->signal };
		sf_signals_hold_all();
		s64 group = sf_rpc(SF_RPC_FORK, e->seq, 0, 0, 0, 0), own = group;
		if (group >= 0) {
			own = sf_raw6(NR_clone3, (u64)&ca, sizeof ca, 0, 0, 0, 0);
			tls.selector = 1;
			if (own == 0)
				begin(r, k, (u64)group, pid);
			if (own < 0)
				sf_rpc(SF_RPC_UNFORK, (u64)group, 0, 0, 0, 0);
		}
		if (own > 0) {
			sf_pair_bore((s32)pid, (s32)own);
			sf_shown_bore((u32)own);
		} else {
			me.poison |= SF_SPOILED;
		}
		sf_signals_release();
	}
	if (pid > 0)
		note_child(k, pid);
	returns(e, done, r, pid);
}

NORETURN static void fork(struct sf_event *e, struct sf_regs *r, const struct asked *k)
{
	const struct sf_result *done;
	if (me.slot != 0 && (G->options & SF_O_PAIR))
		fork_alike(e, r, k);
	if (me.slot != 0) {
		done = leaders_word(e);
		const s64 pid = done->ret;
		if (pid > 0) {
			const u64 fd = (u32)done->aux;
			s64 copy = me.role == SF_FOLLOWER ? sf_orphan(CLONE_FILES) : 1;
			if (copy == 0)
				begin(r, k, fd, pid);
			if (copy < 0)
				me.poison |= SF_SPOILED | SF_SPOILED_ALONE;
			note_child(k, pid);
			note_pidfd(k, (s32)(done->aux >> 32));
		}
		returns(e, done, r, pid);
	}
	sf_signals_hold_all();
	s64 fd = sf_rpc(SF_RPC_FORK, e->seq, 0, 0, 0, 0), pid = fd;
	if (fd >= 0) {
		struct copied ca = { .flags = k->flags & CLONE_PIDFD, .pidfd = (u64)&pidfd, .exit_signal = k->signal };
		if (G->options & SF_O_PAIR)
			sf_pair_grows();
		sf_shared_windows(1);
		pid = sf_raw6(NR_clone3, (u64)&ca, sizeof ca, 0, 0, 0, 0);
		tls.selector = 1;
		sf_shared_windows(0);
		if (pid == 0)
			begin(r, k, (u64)fd, 0);
		if (pid < 0)
			sf_rpc(SF_RPC_UNFORK, (u64)fd, 0, 0, 0, 0);
		else {
			/* It may be killed before it says its number itself. */
			store(&G->forked[me.forks++ % SF_FORKED_MAX], (u64)pid << 32 | (u32)fd);
			note_child(k, pid);
			note_pidfd(k, pidfd);
		}
	}
	struct sf_result *res = sf_result_begin(e, pid);
	res->aux = (u32)fd | (u64)(u32)pidfd << 32;
	if (pid > 0 && (G->options & SF_O_PAIR)) {
		res->flags |= SF_R_SPAWNED;
		sf_shown_bore((u32)pid);
	}
	sf_result_end(res);
	sf_signals_release();
	returns(e, res, r, pid);
}

/* Agreed, and about children: one is to be made, or one that stands in for the leader ends. Others go on as they are. */
void sf_spawn_hook(struct sf_event *e, struct sf_regs *r, const struct sf_call *c, u32 nr, const u64 a[6])
{
	struct asked k;
	u32 refused = 0;
	if (c->class == SF_REFUSE || c->class == SF_DENY || me.stepping)
		return;
	app.spawn.apart |= app.spawn.active && !is_of_both(c, nr);
	if (app.spawn.active && (c->handler == SF_H_exit || c->handler == SF_H_exit_group))
		child_exits(e, (s64)(a[0] & 0xff));
	if (c->handler != SF_H_fork)
		return;
	what_is_asked(nr, a, &k);
	/* vfork(2): the child has memory of its own, and its parent does not wait for it. */
	if ((G->options & SF_O_PAIR) || app.spawn.active)
		k.flags &= ~(CLONE_VM | CLONE_VFORK);
	if (G->options & SF_O_PAIR) {
		if (sf_domain_refuses())
			refused = SF_NR_PAIR_PROCESS;
	} else if (G->options & SF_O_PROFILE)
		refused = SF_NR_EXEC_COUNT;
	else if (G->options & SF_O_SECCOMP)
		refused = SF_NR_SPAWN_FILTER;
	else if (G->options & SF_O_PRIV_NS)
		refused = SF_NR_SPAWN_NUMBERS;
	else if (app.spawn.active && (app.domain || sf_domain_refuses()))
		refused = SF_NR_SPAWN_NESTED; /* no turn is taken, and nothing is shared, in the name of a parent that waits */
	else if (!(k.flags & CLONE_VM) && sf_domain_refuses())
		refused = SF_NR_SHARED_CHANGE; /* the rest has joined, or was refused by its name */
	if (refused)
		sf_end(SF_E_REFUSED, refused, 0, r);
	if (k.flags & CLONE_VM)
		spawn(e, r, &k);
	fork(e, r, &k);
}
