/* Crew: the processes of a pair's program.
 *
 * Each process is a group of its own on both sites, with a log of its own (crates/pair, crew.rs). What one process does to a
 * file or a pipe the others see, so such calls have one order among all processes, the same on both sites: a process that
 * leads has its turn until the other site has made the call too.
 *
 *   ready? ──► turn ──► still ready? ──► call, result ──► the other site has done it ──► turn ends
 *     ▲                     │ no
 *     └─────────────────────┘
 *
 * Invariants
 *  1. Whoever has its turn waits for nobody but the other site.
 *  2. The secondary's pipes hold the same bytes as the primary's, at every end of a turn.
 *
 * Not covered: memory that processes share, whose turns are those of domain.c; a fifo that has a name, whose open may wait for
 * the turn's end.
 * See fork(2), execve(2), pipe(7), fcntl(2).
 */
#include "agent.h"
#include "pair/storage.h"

#include <asm/errno.h>

#define TREE ((struct sf_tree *)SF_TREE)

/* The secondary's children: the number that the program knows each by, and its own. */
static struct {
	s32 number, own;
	u32 owed;
} child[256];
static u32 children;

/* ... and those of all processes of this site: any may signal any. One that is not to be found signals nobody else's. */
void sf_pair_knows(s32 number, s32 own)
{
	const u64 word = (u32)number | (u64)(u32)own << 32;
	for (u32 i = 0; i < SF_TREE_NUMBERS; i++) {
		u64 free = 0;
		if (__atomic_compare_exchange_n(&TREE->number[i], &free, word, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return;
	}
}

/* The process has ended: its own number may be another one's soon. */
static void forget_crew(s32 own)
{
	for (u32 i = 0; i < SF_TREE_NUMBERS; i++)
		if ((u32)(load(&TREE->number[i]) >> 32) == (u32)own)
			store(&TREE->number[i], 0);
}

void sf_pair_bore(s32 number, s32 own)
{
	sf_pair_knows(number, own);
	const u32 i = children < 256 ? children++ : 0;
	child[i].number = number;
	child[i].own = own;
	child[i].owed = 0;
}

/* Those that the program has waited for may end here a little later. */
void sf_pair_reap(void)
{
	for (u32 i = 0; i < children;) {
		if (child[i].owed && sys4(NR_wait4, child[i].own, 0, 1 /* WNOHANG */, 0) != 0) {
			forget_crew(child[i].own);
			child[i] = child[--children];
		} else {
			i++;
		}
	}
}

void sf_pair_waited(u32 nr, const u64 a[6], s64 ret)
{
	s32 number = (s32)ret;
	if (nr == NR_waitid && (ret != 0 || !a[2] || (a[3] & 0x01000000 /* WNOWAIT */) || sf_user_bytes(&number, a[2] + 12, 4) < 0))
		return;
	for (u32 i = 0; i < children; i++)
		if (child[i].number == number && number > 0)
			child[i].owed = 1;
	sf_pair_reap();
}

/* In a new process, which has no children yet. */
void sf_pair_born(void)
{
	children = 0;
	sf_ipc_born();
	sf_parts_born();
	sf_shown_born();
}

/* The secondary's process, when the primary's has ended. */
void sf_pair_ends(void)
{
	forget_crew((s32)sys0(NR_getpid));
	if (load(&G->end) == SF_E_EXITED)
		for (;;)
			sys1(NR_exit_group, G->end_value & 0xff);
	if (load(&G->end) == SF_E_SIGNALED && G->end_value > 0 && G->end_value <= SF_SIGNALS) {
		const u64 none = 0, by_default[4] = { 0 }, no_core[2] = { 0, 0 };
		sys4(NR_prlimit64, 0, 4 /* RLIMIT_CORE */, no_core, 0);
		sys4(NR_rt_sigaction, G->end_value, by_default, 0, 8);
		sys4(NR_rt_sigprocmask, 2 /* SIG_SETMASK */, &none, 0, 8);
		sys2(NR_kill, sys0(NR_getpid), G->end_value);
	}
}

/* What the kernel calls a process that the program knows as `number`; and, of a child, the other way. 0: it is none from before
 * a take-over. */
s32 sf_pair_own(s32 number)
{
	for (u32 i = 0; i < children; i++)
		if (child[i].number == number)
			return child[i].own;
	for (u32 i = 0; number > 0 && (G->options & SF_O_PAIR) && i < SF_TREE_NUMBERS; i++) {
		const u64 word = load(&TREE->number[i]);
		if ((u32)word == (u32)number)
			return (s32)(word >> 32);
	}
	return 0;
}

/* A process that leads from here on. */
void sf_pair_leads(void)
{
	const s32 own = (s32)sys0(NR_getpid);
	if (!sf_pair_own((s32)G->leader_pid))
		sf_pair_knows((s32)G->leader_pid, own);
}

s32 sf_pair_number(s32 own)
{
	for (u32 i = 0; i < children; i++)
		if (child[i].own == own)
			return child[i].number;
	return 0;
}

/* A leader has waited for a child: its number, if it is one from before a take-over. */
s32 sf_pair_reaped(s32 own)
{
	const s32 number = sf_pair_number(own);
	if (number && sys2(NR_kill, own, 0) == -ESRCH) {
		forget_crew(own);
		/* The kernel may give its own number to a child that comes later. */
		for (u32 i = 0; i < children; i++)
			if (child[i].own == own)
				child[i--] = child[--children];
	}
	return number;
}

/* The first fork: from now on calls on files and pipes take turns. */
void sf_pair_grows(void)
{
	__atomic_fetch_add(&TREE->processes, 1, __ATOMIC_SEQ_CST);
}

/* ---- turns ---- */

static u32 has_turn;
static u64 flags_of_pipe; /* to be put back, + 1 */

static void take_turn(void)
{
	const u32 own = (u32)sys0(NR_getpid);
	const struct {
		s64 sec, nsec;
	} pause = { 0, 100000 };
	for (u32 looks = 0; !has_turn; looks++) {
		u32 owner = 0;
		if (__atomic_compare_exchange_n(&TREE->owner, &owner, own, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			has_turn = 1;
		else if (looks % 64 == 63 && sys2(NR_kill, owner, 0) == -ESRCH)
			__atomic_compare_exchange_n(&TREE->owner, &owner, 0, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		else
			sys2(NR_nanosleep, &pause, 0);
	}
}

/* There have been several processes: they take turns. */
int sf_pair_has_others(void)
{
	return TREE->processes != 0;
}

int sf_pair_has_turn(void)
{
	return has_turn != 0;
}

void sf_pair_end_turn(void)
{
	if (likely(!has_turn))
		return;
	has_turn = 0;
	store(&TREE->owner, 0);
}

/* A lock that another process holds is waited for without the turn: who has it may need the turn to give it back. */
static int waits_for_lock(u32 nr, const u64 a[6])
{
	return (nr == NR_flock && !(a[1] & 12 /* LOCK_NB, LOCK_UN */)) ||
	       (nr == NR_fcntl && ((u32)a[1] == 7 /* F_SETLKW */ || (u32)a[1] == 38 /* F_OFD_SETLKW */));
}

static int has_lock(u32 nr, const u64 a[6])
{
	return sys3(nr, (u32)a[0], nr == NR_flock ? a[1] | 4 : (u32)a[1] - 1, a[2]) != -EAGAIN;
}

/* The leader, before a call: 0, or what the call answers since a signal has come, or since it would wait and other threads go
 * on. `e` has made no call then. */
s64 sf_pair_turn(struct sf_event *e, u32 nr, const u64 a[6])
{
	flags_of_pipe = 0;
	if (likely(!TREE->processes) || !sf_takes_turns(nr, a))
		return 0;
	const enum sf_pipe_end pipe = sf_pipe_end(nr, a);
	struct {
		s32 fd;
		short events, revents;
	} p = { (s32)a[0], pipe == SF_PIPE_WRITE ? 4 /* POLLOUT */ : 1 /* POLLIN */, 0 };
	const u64 poll[7] = { 7, (u64)&p, 1, -1ull };
	const struct {
		s64 sec, nsec;
	} pause = { 0, 1000000 };
	for (;;) {
		s64 flags = 0;
		if (pipe && (flags = sys2(NR_fcntl, (u32)a[0], 3 /* F_GETFL */)) >= 0 && !(flags & 04000 /* O_NONBLOCK */)) {
			if (app.threads > 1 && sf_threads_may_wake()) { /* another thread goes on meanwhile */
				u64 call[7] = { nr, a[0], a[1], a[2], a[3], a[4], a[5] };
				if (sf_try(nr, call) == SF_TRY_PARK)
					return SF_WOULD_WAIT;
			}
			tls.abort = 0;
			me.interruptible = 1;
			barrier();
			if (unlikely(sf_signal_pending() | (load(&G->alarm) != SF_A_QUIET)))
				tls.abort = 1;
			s64 r = sf_call_agreed(e, poll);
			me.interruptible = 0;
			tls.abort = 0;
			if (r == -EINTR || r == SF_NOT_MADE) {
				if (sf_signal_pending() || load(&G->alarm))
					return r;
				continue;
			}
			me.made = 0;
			store(&G->slot[0].made, 0);
		}
		take_turn();
		if (waits_for_lock(nr, a) && !has_lock(nr, a)) {
			sf_pair_end_turn();
			if (sf_signal_pending() || load(&G->alarm))
				return SF_NOT_MADE;
			sys2(NR_nanosleep, &pause, 0);
			continue;
		}
		if (!pipe || (flags & 04000))
			return 0;
		if (sys3(NR_poll, &p, 1, 0) > 0) {
			if (pipe == SF_PIPE_WRITE && sys3(NR_fcntl, (u32)a[0], 4 /* F_SETFL */, flags | 04000) == 0)
				flags_of_pipe = (u64)flags + 1;
			return 0;
		}
		sf_pair_end_turn();
	}
}

/* After it. 1: a write to a pipe that has moved a part of its bytes; the rest is the next event. */
int sf_pair_turned(u32 nr, const u64 a[6], s64 ret)
{
	if (likely(!flags_of_pipe))
		return 0;
	sys3(NR_fcntl, (u32)a[0], 4, flags_of_pipe - 1);
	flags_of_pipe = 0;
	return ret > 0 && (u64)ret < sf_bytes_left(nr, a);
}

/* What the program has open, for the one that takes its place. */
void sf_pair_bequeath(void)
{
	for (u64 fd = 0; fd < FDS_MAX; fd++)
		PAIR->classes[fd] = sf_fd_class[fd] != F_NONE && !sf_closes_on_exec((s64)fd) ? sf_fd_class[fd] : F_NONE;
	sf_kernel_bequeath(PAIR->kept);
	if (me.slot == 0)
		return;
	/* The kernel's word for what the program ignores is what the next program hears. */
	for (u64 s = 1; s <= SF_SIGNALS; s++)
		if (s != 9 && s != 19)
			sys4(NR_rt_sigaction, s, &(struct sf_action){ .handler = app.action[s].handler == 1 ? 1 : 0 }, 0, 8);
}

/* The secondary, at an execve(2) that is agreed on: waits until the primary is another program, or is none. */
void sf_pair_exec(struct sf_event *e, u32 nr, const u64 a[6])
{
	const u64 call[7] = { nr, a[0], a[1], a[2], a[3], a[4], a[5] };
	struct sf_replica *own = &G->slot[me.slot];
	static const s64 look[2] = { 0, 5 * 1000 * 1000 };
	if (me.slot == 0 || me.role != SF_FOLLOWER)
		return;
	while (load(&PAIR->exec_seq) != e->seq) {
		const u32 bell = load(&own->bell);
		if (load(&RESULT(e->seq - me.base)->seq) == e->seq || load(&G->alarm) != SF_A_QUIET)
			return; /* the primary's kernel has refused it, or nobody knows */
		if (load(&PAIR->exec_seq) != e->seq)
			sys4(NR_futex, &own->bell, 0 /* FUTEX_WAIT */, bell, look);
	}
	s64 r = sf_exec_begin(nr, a);
	if (r == 0) {
		r = sf_call_agreed(e, call);
		sf_exec_failed();
	}
	sf_rpc(SF_RPC_PAIR_DIFFERS, e->seq, nr, (u64)r, 0, ~0ull);
	for (;;)
		sys0(NR_pause);
}
