/* Ward: a child and its parent, of which one goes on under a new leader while the other lives.
 *
 *   launcher ──► a ward: this child has a keeper (crates/replica, ward.rs)
 *   the child's leader is killed ──► the parent's agent reaps it, unseen by the program, and leaves a proxy in its place:
 *                                    a child of the same number
 *                                ──► the launcher makes the leader again, under another number
 *   signals to the proxy ──► the new leader;  the new leader's end ──► the proxy's end
 *   an ordinary user's proxy cannot have that number ──► the agent says the child's, as below
 *
 *   the parent's leader is killed ──► its children are the launcher's ──► a ward for each, to be adopted
 *                                 ──► the new leader makes a proxy for each, under another number, and says the child's
 *   the child's end ──► the launcher ──► the proxy's end ──► the new leader
 *
 * So wait(2), SIGCHLD, kill(2) and the number of the child stay the kernel's. The parent's agent looks where a child's end
 * can show: at SIGCHLD, in what wait4(2) and waitid(2) answer, and at the launcher's nudge.
 *
 * Invariants
 *  1. A death is kept from the program only if it is by SIGKILL, of a child that is a ward, and once.
 *  2. Where there can be no proxy, the launcher is told and stops the tree.
 *  3. An entry that was adopted is free again when the program has been told of the child's end, and by the agent alone.
 *
 * Not covered: stops of the new leader, which the parent does not see; its CPU time, which is the proxy's. setpgid(2) of an
 * adopted child, which is none of its parent's to the kernel. Of an ordinary user's: what processes outside the program do by
 * its number; the process group that it leads stays, since its keeper is a member.
 * See clone3(2) set_tid, wait(2), rt_sigqueueinfo(2); docs/concepts/replication.md, "Children".
 */
#include "agent.h"
#include <asm/errno.h>

#define SIGKILL 9
#define SIGCHLD 17
#define CLD_KILLED 2
#define P_PID 1
#define P_ALL 0
#define WNOHANG 1
#define WEXITED 4u
#define WNOWAIT 0x01000000u
#define ANY_CHANGE (WEXITED | 2 /* WSTOPPED */ | 8 /* WCONTINUED */ | WNOHANG | WNOWAIT)
#define RLIMIT_CORE 4
#define P_PGID 2
#define SECOND 1000000000
#define LOOKS 5000 /* in a second */
#define FORWARDED (0x5346 << 16) /* signal.c */

/* The call that was under way has the death that a handler came to know of. */
static u8 owed[SF_WARDS_MAX];
static s64 group_of_child; /* a process group */

static s64 raw4(u64 nr, u64 a, u64 b, u64 c, u64 d)
{
	u64 call[7] = { nr, a, b, c, d, 0, 0 };
	return sf_raw(call);
}

static struct sf_ward *ward_of(s32 pid)
{
	for (u32 i = 0; i < SF_WARDS_MAX; i++) {
		struct sf_ward *w = &G->ward[i];
		u32 state = load(&w->state);
		if ((state == SF_W_KEPT || state == SF_W_PROXY || (state == SF_W_ADOPTED && owed[i])) && w->pid == pid &&
		    w->pid_inv == ~(u32)pid)
			return w;
	}
	return NULL;
}

/* ---- the proxy ---- */

NORETURN static void end_as(u32 status)
{
	const u32 signal = status & 0x7f;
	if (signal) {
		const u64 no_core[2] = { 0, 0 }, none = 0, by_default[4] = { 0 };
		raw4(NR_prlimit64, 0, RLIMIT_CORE, (u64)no_core, 0);
		raw4(NR_rt_sigaction, signal, (u64)by_default, 0, 8);
		raw4(NR_rt_sigprocmask, 2, (u64)&none, 0, 8);
		raw4(NR_kill, (u64)raw4(NR_getpid, 0, 0, 0, 0), signal, 0, 0);
	}
	for (;;)
		raw4(NR_exit_group, signal ? 128 + signal : status >> 8, 0, 0, 0);
}

/* 0: there is no such process any more. */
static int passes_on(s32 leader, s64 signal, struct sf_siginfo *i)
{
	if (i->code != -1 /* SI_QUEUE */ || (u32)i->err >> 16 != FORWARDED >> 16) {
		i->err = FORWARDED | (i->code & 0xffff);
		i->code = -1;
	}
	s64 r = raw4(NR_rt_sigqueueinfo, (u64)leader, (u64)signal, (u64)i, 0);
	if (r == -EPERM)
		r = raw4(NR_kill, (u64)leader, (u64)signal, 0, 0);
	return r != -ESRCH;
}

/* Holds nothing but its number: passes on what is sent to it, and ends as the launcher says. One of another number is not
 * meant by what is sent to it, and is in the child's process group, since its parent may wait for that. */
NORETURN static void be_proxy(struct sf_ward *w)
{
	static const s64 look[2] = { 0, 200 * 1000 * 1000 }, soon[2] = { 0, 2 * 1000 * 1000 };
	const u64 all = ~0ull;
	const int is_meant = raw4(NR_getpid, 0, 0, 0, 0) == w->pid;
	struct sf_siginfo i;
	s64 s = 0;
	raw4(NR_close_range, 0, ~0u, 0, 0);
	raw4(NR_munmap, 0, SF_BASE, 0, 0);
	raw4(NR_munmap, SF_SHARED + SF_SHARED_BYTES, 0x7ffffffff000ull - SF_SHARED - SF_SHARED_BYTES, 0, 0);
	if (!is_meant)
		raw4(NR_setpgid, 0, (u64)group_of_child, 0, 0);
	for (;;) {
		if (load(&w->state) == SF_W_ENDED || load(&w->over))
			end_as(w->status);
		if (raw4(NR_kill, (u64)sf_boot.launcher_pid, 0, 0, 0) == -ESRCH)
			end_as(SIGKILL);
		const s32 leader = w->leader;
		const int leads = leader > 1 && w->leader_inv == ~(u32)leader;
		if (is_meant && (!leads || (s > 0 && !passes_on(leader, s, &i)))) {
			raw4(NR_nanosleep, (u64)soon, 0, 0, 0); /* for the one that is being made */
			continue;
		}
		/* Who leads may be another one behind it. */
		s = s > 0 ? 0 : raw4(NR_rt_sigtimedwait, (u64)&all, (u64)&i, (u64)look, 8);
	}
}

/* A child that is nothing but a number: the ward's own, or one that the kernel chooses. All signals are blocked. */
static s64 proxy(struct sf_ward *w, int of_its_number)
{
	struct {
		u64 flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
	} ca = { .exit_signal = SIGCHLD };
	const u32 armed = tls.selector;
	s32 number = w->pid;
	if (of_its_number) {
		ca.set_tid = (u64)&number;
		ca.set_tid_size = 1;
	}
	s64 pid = raw4(NR_clone3, (u64)&ca, sizeof ca, 0, 0);
	if (pid == 0)
		be_proxy(w);
	tls.selector = armed;
	return pid;
}

static void is_proxied_by(struct sf_ward *w, s64 pid)
{
	w->proxy = (s32)pid;
	w->proxy_inv = ~(u32)pid;
	store(&w->state, pid > 0 ? SF_W_ADOPTED : SF_W_FAILED);
}

/* The leader of a ward was killed: its number goes to a proxy, if it may. */
static void leave_proxy(struct sf_ward *w)
{
	me.strays |= w->any_number;
	if (w->any_number)
		return is_proxied_by(w, proxy(w, 0));
	store(&w->state, proxy(w, 1) == w->pid ? SF_W_PROXY : SF_W_FAILED);
}

/* This leader was made again. The children of the one before are the launcher's, and each gets a proxy; one whose own leader
 * was made again had its number from one before. Negative: it cannot wait for one of them. */
s64 sf_wards_adopt(void)
{
	const u64 all = ~0ull;
	u64 old = 0;
	s64 pid = 0;
	raw4(NR_rt_sigprocmask, 0, (u64)&all, (u64)&old, 8);
	for (u32 n = 0; n < SF_WARDS_MAX && pid >= 0; n++) {
		struct sf_ward *w = &G->ward[n];
		if (load(&w->state) != SF_W_ADOPT)
			continue;
		group_of_child = raw4(NR_getpgid, (u64)w->pid, 0, 0, 0);
		pid = w->leader == w->pid ? -1 : proxy(w, 1);
		if (pid < 0)
			pid = proxy(w, 0);
		is_proxied_by(w, pid);
	}
	raw4(NR_rt_sigprocmask, 2, (u64)&old, 0, 8);
	return pid < 0 ? pid : 0;
}

static struct sf_ward *adopted(s32 pid, int by_proxy)
{
	for (u32 i = 0; i < SF_WARDS_MAX; i++) {
		struct sf_ward *w = &G->ward[i];
		if (load(&w->state) == SF_W_ADOPTED && w->pid_inv == ~(u32)w->pid && w->proxy_inv == ~(u32)w->proxy &&
		    (by_proxy ? w->proxy : w->pid) == pid)
			return w;
	}
	return NULL;
}

/* What the kernel tells of the leader's child, as the program knows it. */
void sf_ward_names(struct sf_siginfo *i)
{
	struct sf_ward *w = i->signo == SIGCHLD && i->code > 0 && i->code <= 6 ? adopted((s32)i->words[0], 1) : NULL;
	if (w)
		i->words[0] = (i->words[0] & ~0xffffffffull) | (u32)w->pid;
}

/* A number that the program gives, as the kernel knows this leader's child. */
static u64 as_child_ward(u64 pid)
{
	struct sf_ward *w = (s32)pid > 1 ? adopted((s32)pid, 0) : NULL;
	return w ? (u64)w->proxy : pid;
}

/* Whom a signal reaches that the program sends to a number: to a child that has another by now, its death is the proxy's. */
u64 sf_ward_reaches(u64 pid, u64 signal)
{
	const struct sf_ward *w = (s32)pid > 1 ? adopted((s32)pid, 0) : NULL;
	const s32 leader = w ? w->leader : 0;
	if (leader <= 1 || leader == w->pid || w->leader_inv != ~(u32)leader)
		return pid;
	return (u64)(signal == SIGKILL ? w->proxy : leader);
}

/* A child's end that the program is told of; by its proxy's number. The other number is the answer. */
static s32 said(s32 pid, int for_good)
{
	struct sf_ward *w = adopted(pid, 1);
	if (!w)
		return pid;
	const s32 number = w->pid, leader = w->leader;
	if (!for_good)
		return number;
	/* Somebody may have killed the proxy, and so the child. */
	const int over = load(&w->over) != 0;
	if (!over && leader > 1 && w->leader_inv == ~(u32)leader)
		sys2(NR_kill, leader, SIGKILL);
	store(&w->state, over ? SF_W_FREE : SF_W_GONE);
	return number;
}

/* ---- the parent ---- */

/* Whoever reaps a child takes along what the kernel knows of it: what it has written, and signals that it had yet to take. */
static void let_the_launcher_look(struct sf_ward *w)
{
	static const s64 step[2] = { 0, SECOND / LOOKS };
	for (u32 n = 0; n < LOOKS && !load(&w->looked); n++)
		raw4(NR_nanosleep, (u64)step, 0, 0, 0);
}

/* It has died by SIGKILL: nobody hears of that. A handler may come to know of it at any time, and once is enough. */
static void died(struct sf_ward *w)
{
	const u64 all = ~0ull;
	u64 old = 0;
	sys4(NR_rt_sigprocmask, 0, &all, &old, 8);
	group_of_child = sys1(NR_getpgid, w->pid);
	if (w->state == SF_W_KEPT) {
		let_the_launcher_look(w);
		if (sys4(NR_wait4, w->pid, 0, WNOHANG, 0) != w->pid)
			owed[w - G->ward] = me.interruptible != 0;
		leave_proxy(w);
	}
	sys4(NR_rt_sigprocmask, 2, &old, 0, 8);
}

/* The launcher has seen that the leader of a ward is gone, whose parent may hear of it late. */
void sf_wards_look(void)
{
	for (u32 n = 0; n < SF_WARDS_MAX; n++) {
		struct sf_ward *w = &G->ward[n];
		struct sf_siginfo i = { 0 };
		if (load(&w->state) != SF_W_KEPT || w->pid_inv != ~(u32)w->pid || w->pid <= 1)
			continue;
		s64 r = sf_sys(NR_waitid, P_PID, (u64)w->pid, (u64)&i, WEXITED | WNOHANG | WNOWAIT, 0, 0);
		if (r == -ECHILD || (r == 0 && i.signo && i.code == CLD_KILLED && (s32)i.words[1] == SIGKILL))
			died(w);
	}
}

/* SIGCHLD, in the handler of the leader. 1: the program does not hear of it; else `i` may be of another child, whose own the
 * kernel has left out for this one. */
int sf_ward_takes(struct sf_siginfo *i)
{
	struct sf_ward *w;
	struct sf_siginfo other = { 0 };
	if (i->signo != SIGCHLD || i->code != CLD_KILLED || (s32)i->words[1] != SIGKILL || !(w = ward_of((s32)i->words[0])) ||
	    w->state != SF_W_KEPT)
		return 0;
	died(w);
	if (sf_sys(NR_waitid, P_ALL, 0, (u64)&other, ANY_CHANGE, 0, 0) < 0 || !other.signo)
		return 1;
	*i = other;
	return 0;
}

static struct {
	s32 status;
	u32 spare;
	struct sf_siginfo info;
} own;

/* Leader: whether what a call answers is looked at before the program has it, since a child may become a ward meanwhile. */
int sf_ward_may_show(u32 nr)
{
	return (nr == NR_wait4 || nr == NR_waitid) && !sf_alone() && !(G->options & SF_O_PAIR);
}

static u64 asked;

static u64 child_asked(u32 nr, const u64 a[6])
{
	return nr == NR_wait4 ? as_child_ward(a[0]) : a[0] == P_PID ? as_child_ward(a[1]) : 0;
}

/* Before it: `to` are its arguments. */
void sf_ward_asks(u32 nr, const u64 a[6], u64 to[6])
{
	memcpy(to, a, 6 * sizeof *a);
	memset(&own, 0, sizeof own);
	memset(owed, 0, sizeof owed);
	to[nr == NR_wait4 ? 1 : 2] = nr == NR_wait4 ? (u64)&own.status : (u64)&own.info;
	asked = child_asked(nr, a);
	if (nr == NR_wait4)
		to[0] = asked;
	else if (a[0] == P_PID)
		to[1] = asked;
}

static struct sf_siginfo seen;

/* The call was not made, as far as the program knows. */
static s64 hidden(void)
{
	me.made = 0;
	store(&G->slot[0].made, 0);
	return SF_NOT_MADE;
}

/* The call that waits as this one does, but takes nothing: a child that nobody is to hear of is looked at before it is reaped.
 * 0: there is none. */
int sf_ward_peeks(u32 nr, const u64 own_args[6], u64 look[6])
{
	const u64 *a = own_args;
	const s32 pid = (s32)a[0];
	memset(&seen, 0, sizeof seen);
	if (nr == NR_waitid) {
		memcpy(look, a, 6 * sizeof *look);
		look[3] |= WNOWAIT;
		look[4] = 0; /* what it has used is told once */
	} else if (a[2] & (WEXITED | WNOWAIT) || a[2] >> 32 || pid == -2147483647 - 1) {
		return 0; /* it is an error */
	} else {
		const u64 group = (u64) - (s64)pid;
		look[0] = pid == -1 ? P_ALL : pid > 0 ? P_PID : P_PGID;
		look[1] = pid > 0 ? (u64)pid : pid == -1 ? 0 : group;
		look[3] = a[2] | WEXITED | WNOWAIT;
		look[4] = 0;
	}
	look[2] = (u64)&seen;
	return 1;
}

/* It has found a child, or none. What is to be waited for, by `args`: 1; nothing: 0. */
s64 sf_ward_found(u32 nr, u64 args[6])
{
	const s32 pid = (s32)seen.words[0];
	struct sf_ward *w = seen.code == CLD_KILLED && (s32)seen.words[1] == SIGKILL ? ward_of(pid) : NULL;
	if (!seen.signo)
		return 0;
	hidden();
	if (w && w->state == SF_W_KEPT) {
		died(w);
		return SF_NOT_MADE;
	}
	if (nr == NR_wait4) {
		args[0] = (u64)pid;
		args[2] |= WNOHANG;
	} else {
		args[0] = P_PID;
		args[1] = (u64)pid;
		args[3] |= WNOHANG;
	}
	return 1;
}

/* Whether a child's end is to stay unknown. */
static int hides(s32 pid, int by_kill, int for_good)
{
	struct sf_ward *w = ward_of(pid);
	if (!w)
		return 0;
	if (by_kill && w->state == SF_W_KEPT) {
		died(w);
		return 1;
	}
	if (by_kill && owed[w - G->ward]) {
		owed[w - G->ward] = 0;
		return 1;
	}
	if (!for_good)
		return 0;
	/* By itself; or somebody has killed its proxy, and so means the leader. */
	const s32 leader = w->leader;
	if (w->state == SF_W_PROXY && leader > 1 && w->leader_inv == ~(u32)leader)
		sys2(NR_kill, leader, SIGKILL);
	store(&w->state, SF_W_GONE);
	return 0;
}

/* After it: what the program is told. */
s64 sf_ward_answers(u32 nr, const u64 a[6], s64 r)
{
	/* A handler has left a proxy meanwhile, perhaps of another number. */
	if (r == -ECHILD && (seen.signo || child_asked(nr, a) != asked))
		return hidden();
	if (r < 0)
		return r;
	if (!r && (nr == NR_wait4 ? !(a[2] & WNOHANG) : !own.info.signo && !(a[3] & WNOHANG)))
		return hidden();
	if (nr == NR_wait4) {
		const u32 signal = own.status & 0x7f;
		if (r > 0 && signal != 0x7f && hides((s32)r, signal == SIGKILL, 1))
			return hidden();
		if (r > 0)
			r = said((s32)r, signal != 0x7f && own.status != 0xffff /* continued */);
		return r > 0 && a[1] && sf_user_put(a[1], &own.status, 4) ? -EFAULT : r;
	}
	struct sf_siginfo *i = &own.info;
	const int ends = i->signo && i->code >= 1 && i->code <= 3;
	if (ends && hides((s32)i->words[0], i->code == CLD_KILLED && (s32)i->words[1] == SIGKILL, !(a[3] & WNOWAIT)))
		return hidden();
	if (i->signo)
		i->words[0] = (i->words[0] & ~0xffffffffull) | (u32)said((s32)i->words[0], ends && !(a[3] & WNOWAIT));
	/* The kernel stores six words, and not what lies between. */
	return a[2] && (sf_user_put(a[2], i, 12) || sf_user_put(a[2] + 16, i->words, 12)) ? -EFAULT : r;
}

/* A leader that was made again is the launcher's child, as is one whose parent was, and tells its program the parent that
 * it had before. */
int sf_ward_parent(s64 *pid)
{
	*pid = G->parent;
	if (G->parent > 1 && G->parent_inv == ~(u32)G->parent && sys2(NR_kill, G->parent_process, 0) == 0)
		return 1;
	/* It may be on its way. */
	if (sf_alone() || !(G->options & SF_O_TREE) || sys0(NR_getppid) != sf_boot.launcher_pid)
		return 0;
	*pid = sf_rpc(SF_RPC_PARENT, 0, 0, 0, 0, 0);
	return *pid > 1;
}
