/* Ipc: what a pair's program has made of System V: segments, sets of semaphores, queues of messages.
 *
 * The kernel of one host does not show them to the other one. So each site has its own, and the program knows each by one number:
 *
 *   primary    semget, msgget ──► the number in the log ──► the secondary makes one too, and notes which of its own that is
 *   primary    semop, msgsnd, msgrcv, semctl(SETVAL) ... ──► the secondary does the same to its own
 *
 * Where processes share one, calls that change it take turns (crew.c). One that would wait is tried without waiting, and
 * gives its turn meanwhile: who is to change what it waits for needs the turn as well.
 *
 * Invariants
 *  1. After each event both sites' hold the same, but for what the kernel takes back when a process ends (SEM_UNDO).
 *  2. One that somebody else has made is refused by name: the other site's host does not have it.
 *
 * Not covered: numbers of processes and times that the kernel tells of one (IPC_STAT) are those of its site.
 * See svipc(7), semop(2), msgop(2).
 */
#include "agent.h"
#include "pair/storage.h"

#include <asm/errno.h>

#define TREE ((struct sf_tree *)SF_TREE)
#define IPC_RMID 0u
#define IPC_SET 1u
#define IPC_STAT 2u
#define NOWAIT 04000u
#define NEW 03000u /* IPC_CREAT|IPC_EXCL */
#define COPY 040000u /* MSG_COPY: it stays in the queue */
#define GETPID 11u
#define SETVAL 16u
#define UNDO 0x1000u
#define OPS_MAX 512u /* above SEMOPM (semop(2)) */
#define LOOKS 10000u /* a millisecond each: a process of this site that ends gives its semaphores back before */

struct op {
	u16 which;
	int16_t by;
	u16 flags;
};
_Static_assert(sizeof(struct op) == 6, "struct sembuf");

static const struct {
	s64 sec, nsec;
} nap = { 0, 1000000 };

/* Of what kind a call is; -1: of none. */
int sf_ipc_kind(u32 nr)
{
	switch (nr) {
	case NR_shmget:
	case NR_shmctl: return SF_IPC_SEGMENT;
	case NR_semget:
	case NR_semop:
	case NR_semtimedop:
	case NR_semctl: return SF_IPC_SET;
	case NR_msgget:
	case NR_msgsnd:
	case NR_msgrcv:
	case NR_msgctl: return SF_IPC_QUEUE;
	}
	return -1;
}

static u32 command_of(u32 nr, const u64 a[6])
{
	return (u32)a[nr == NR_semctl ? 2 : 1];
}

/* A command about the host, or about the object at a place of the kernel's. */
static int is_of_host(u32 nr, const u64 a[6])
{
	const u32 c = command_of(nr, a);
	return (nr == NR_semctl && (c == 3 || (c >= 18 && c <= 20))) || (nr == NR_msgctl && (c == 3 || (c >= 11 && c <= 13)));
}

int sf_ipc_names(u32 nr, const u64 a[6])
{
	return sf_ipc_kind(nr) >= 0 && nr != NR_shmget && nr != NR_semget && nr != NR_msgget && !is_of_host(nr, a);
}

/* What this site's kernel tells of its own. */
static s64 look_at(int kind, s32 own)
{
	u64 about[16]; /* struct msqid64_ds is the largest, with 120 bytes */
	return kind == SF_IPC_SEGMENT ? sys3(NR_shmctl, own, IPC_STAT, about)
	       : kind == SF_IPC_SET   ? sys4(NR_semctl, own, 0, IPC_STAT, about)
				      : sys3(NR_msgctl, own, IPC_STAT, about);
}

/* ---- numbers ---- */

static u64 *known(int kind, u32 half, s32 id)
{
	for (u32 i = 0; i < SF_TREE_IPC; i++) {
		const u64 word = load(&TREE->ipc[kind][i]);
		if (word && (u32)(word >> 32 * half) == (u32)id + 1)
			return &TREE->ipc[kind][i];
	}
	return NULL;
}

/* Those that the kernel has no more make room. 0: there is none. */
int sf_ipc_numbered(int kind, s32 number, s32 own)
{
	const u64 word = ((u32)number + 1ull) | ((u32)own + 1ull) << 32;
	for (u32 i = 0; i < SF_TREE_IPC; i++) {
		const u64 old = load(&TREE->ipc[kind][i]);
		const s64 r = old ? look_at(kind, (s32)(u32)(old >> 32) - 1) : 0;
		if (r == -EINVAL || r == -EIDRM)
			store(&TREE->ipc[kind][i], 0);
	}
	for (u32 i = 0; i < SF_TREE_IPC; i++) {
		u64 free = 0;
		if (__atomic_compare_exchange_n(&TREE->ipc[kind][i], &free, word, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return 1;
	}
	return 0;
}

/* What this site's kernel calls the one that the program knows as `number`; what it does not know nobody has. */
s32 sf_ipc_own(int kind, s32 number)
{
	if (!(G->options & SF_O_PAIR))
		return number;
	const u64 *one = known(kind, 0, number);
	if (one)
		return (s32)(u32)(load(one) >> 32) - 1;
	return known(kind, 1, number) ? -1 : number;
}

/* The leader, whose kernel has made one, or found it: what the program is to know it by. It may know another one by that number, from a
 * kernel that is lost. */
s32 sf_ipc_number(int kind, s32 own, int made)
{
	const u64 *one = known(kind, 1, own);
	s32 number = own;
	if (one)
		return (s32)((u32)load(one) - 1);
	if (!made)
		return own;
	while (known(kind, 0, number))
		number = (number + (1 << 24)) & 0x7fffffff;
	if (!sf_ipc_numbered(kind, number, own))
		sf_end(SF_E_REFUSED, SF_NR_PAIR_IPC_MANY, 0, me.regs);
	return number;
}

static void forget_ipc(int kind, s32 number)
{
	u64 *one = known(kind, 0, number);
	if (one)
		store(one, 0);
}

/* ---- what the kernel takes back when a process ends ---- */

static int undo_is(const struct sf_owed *u, s32 set, u32 which)
{
	return u->process && u->set == set && (which == ~0u || u->which == which);
}

/* semctl(2): such a semaphore has nothing to be taken back any more, of any process. */
static void undo_gone(s32 set, u32 which)
{
	for (u32 i = 0; i < SF_TREE_UNDO; i++)
		if (undo_is(&TREE->undo[i], set, which))
			store(&TREE->undo[i].process, 0);
}

static struct sf_owed *undo_of(u32 process, s32 set, u32 which)
{
	struct sf_owed *free = NULL;
	for (u32 i = 0; i < SF_TREE_UNDO; i++) {
		struct sf_owed *u = &TREE->undo[i];
		if (u->process == process && undo_is(u, set, which))
			return u;
		if (!free && (!u->process || sys2(NR_kill, u->process, 0) == -ESRCH))
			free = u;
	}
	if (free)
		*free = (struct sf_owed){ process, set, (u16)which, 0 };
	return free;
}

/* This process, whose number another one may have had. */
void sf_ipc_born(void)
{
	const u32 own = (u32)sys0(NR_getpid);
	for (u32 i = 0; (G->options & SF_O_PAIR) && i < SF_TREE_UNDO; i++)
		if (TREE->undo[i].process == own)
			store(&TREE->undo[i].process, 0);
}

static void note_undo(s32 set, const struct op *op, u64 n)
{
	const u32 own = (u32)sys0(NR_getpid);
	for (u64 i = 0; i < n; i++) {
		if (!(op[i].flags & UNDO) || !op[i].by)
			continue;
		struct sf_owed *u = undo_of(own, set, op[i].which);
		if (!u)
			TREE->undo_lost = 1;
		else if (!(u->by = (int16_t)(u->by - op[i].by)))
			store(&u->process, 0);
	}
}

/* A joiner's process, which has what the survivor's had done: the kernel is to take it back, as there. Its semaphores were made so that
 * they come to the survivor's values by this (crates/replica/src/site/objects.rs). */
s64 sf_ipc_undoes(void)
{
	const u32 own = (u32)sys0(NR_getpid);
	for (u32 i = 0; i < SF_TREE_UNDO; i++) {
		const struct sf_owed *u = &TREE->undo[i];
		const struct op op = { u->which, (int16_t)-u->by, UNDO | NOWAIT };
		const s64 r = u->process == own ? sys3(NR_semop, sf_ipc_own(SF_IPC_SET, u->set), &op, 1) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- the leader ---- */

static int is_get(u32 nr)
{
	return nr == NR_semget || nr == NR_msgget;
}

/* Before a call: whether it is about one that somebody else has made. */
void sf_ipc_before(u32 nr, const u64 a[6])
{
	const int kind = sf_ipc_kind(nr);
	if (kind <= SF_IPC_SEGMENT || me.made == me.next)
		return;
	s64 own = (s32)a[0];
	if (is_get(nr)) {
		if ((u32)a[0] == 0 /* IPC_PRIVATE */ || ((u32)a[nr == NR_semget ? 2 : 1] & NEW) == NEW)
			return;
		own = nr == NR_semget ? sys3(nr, a[0], 0, 0) : sys2(nr, a[0], 0);
		if (own == -ENOENT || (own >= 0 && known(kind, 1, (s32)own)))
			return;
	} else if (is_of_host(nr, a) || sf_ipc_own(kind, (s32)own) != own || known(kind, 0, (s32)own)) {
		return;
	} else if (look_at(kind, (s32)own) != 0 && look_at(kind, (s32)own) != -EACCES) {
		return; /* there is none */
	}
	sf_end(SF_E_REFUSED, SF_NR_PAIR_IPC_OTHER, own, me.regs);
}

/* ... whether it changes one. */
int sf_ipc_changes(u32 nr, const u64 a[6])
{
	const u32 c = command_of(nr, a);
	switch (nr) {
	case NR_semget:
	case NR_semop:
	case NR_semtimedop:
	case NR_msgget:
	case NR_msgsnd:
	case NR_msgrcv: return 1;
	case NR_semctl: return c == IPC_RMID || c == IPC_SET || c == SETVAL;
	case NR_msgctl: return c == IPC_RMID || c == IPC_SET;
	}
	return 0;
}

static int may_wait(u32 nr)
{
	return nr == NR_semop || nr == NR_semtimedop || nr == NR_msgsnd || nr == NR_msgrcv;
}

static u64 begun, waited; /* the event whose time in this process runs; at which it has waited */

/* Whether it has the turn, and so does not wait. */
int sf_ipc_tries(u64 seq, u32 nr)
{
	if (!may_wait(nr) || !(G->options & SF_O_PAIR) || !sf_pair_has_turn())
		return 0;
	if (!app.threads && begun != seq)
		sf_try_on(0);
	begun = seq;
	return 1;
}

/* It would have waited. 1: it is made again, and others have had their turns; `*ret` else. A signal ends such a wait whatever its handler
 * is (signal(7)). */
int sf_ipc_again(u64 seq, u32 nr, s64 *ret)
{
	u64 deadline, retry;
	if (!may_wait(nr))
		return 0;
	if (*ret == SF_NOT_MADE && waited == seq)
		*ret = -EINTR;
	if (*ret != SF_WOULD_WAIT || (app.threads > 1 && sf_threads_may_wake()))
		return 0;
	waited = seq;
	sf_try_until(&deadline, &retry);
	sf_try_on(deadline);
	sf_pair_end_turn();
	*ret = -EINTR;
	if (sf_signal_pending() || load(&G->alarm))
		return 0;
	sys2(NR_nanosleep, &nap, 0);
	return 1;
}

/* After a call that has succeeded, on either site. */
static void changed_ipc(u32 nr, const u64 a[6])
{
	static struct op op[OPS_MAX];
	const s32 number = (s32)a[0];
	const u32 c = command_of(nr, a);
	if (nr == NR_semop || nr == NR_semtimedop) {
		const u64 n = (u32)a[2];
		if (n <= OPS_MAX && sf_user_bytes(op, a[1], n * sizeof *op) == 0)
			note_undo(number, op, n);
		return;
	}
	if (nr == NR_semctl && c == SETVAL)
		undo_gone(number, (u32)a[1]);
	if ((nr != NR_semctl && nr != NR_msgctl) || c != IPC_RMID)
		return;
	if (nr == NR_semctl)
		undo_gone(number, ~0u);
	forget_ipc(sf_ipc_kind(nr), number);
}

/* What the program gets in place of the kernel's answer. */
s64 sf_ipc_result(u32 nr, const u64 a[6], s64 ret)
{
	static u64 noted;
	if (nr == NR_shmget)
		return ret < 0 ? ret : sf_ipc_number(SF_IPC_SEGMENT, (s32)ret, sf_segment_made(a));
	if (is_get(nr))
		return ret < 0 ? ret : sf_ipc_number(sf_ipc_kind(nr), (s32)ret, 1);
	if (nr == NR_semctl && command_of(nr, a) == GETPID && ret > 0) {
		for (u32 i = 0; i < SF_TREE_NUMBERS; i++)
			if ((u32)(load(&TREE->number[i]) >> 32) == (u32)ret)
				return (s64)(u32)load(&TREE->number[i]);
	}
	if (ret >= 0 && sf_ipc_changes(nr, a) && noted != me.next) { /* an event may begin again behind its call */
		noted = me.next;
		changed_ipc(nr, a);
	}
	return ret;
}

/* ---- the secondary ---- */

static s64 makes(u32 nr, const u64 a[6])
{
	return nr == NR_semget ? sys3(nr, a[0], a[1], a[2] | NEW) : sys2(nr, a[0], a[1] | NEW);
}

/* The primary's has been made: this one does not wait, but for a process of this site that is yet to end. */
static s64 does(u32 nr, const u64 a[6])
{
	static struct op op[OPS_MAX];
	const s32 own = sf_ipc_own(sf_ipc_kind(nr), (s32)a[0]);
	const u64 n = (u32)a[2];
	if (nr == NR_semctl)
		return sys4(nr, own, a[1], a[2], a[3]);
	if (nr == NR_msgctl)
		return sys3(nr, own, a[1], a[2]);
	if (nr == NR_msgsnd)
		return sys4(nr, own, a[1], a[2], a[3] | NOWAIT);
	if (nr == NR_msgrcv)
		return sf_sys(nr, (u64)own, a[1], a[2], a[3], a[4] | NOWAIT, 0);
	if (n > OPS_MAX || sf_user_bytes(op, a[1], n * sizeof *op) < 0)
		return -E2BIG;
	for (u64 i = 0; i < n; i++)
		op[i].flags |= NOWAIT;
	s64 r = -EAGAIN;
	for (u32 looks = 0; r == -EAGAIN && looks < LOOKS; looks++) {
		if (looks)
			sys2(NR_nanosleep, &nap, 0);
		r = sys3(NR_semop, own, op, n);
	}
	return r;
}

/* An agreed call, of which the log has the result. What this site's own has come to; the result itself: nothing was to be done. */
s64 sf_ipc_follows(const struct sf_call *c, u32 nr, const u64 a[6], const struct sf_result *r)
{
	if (r->ret < 0 || !sf_ipc_changes(nr, a) || (nr == NR_msgrcv && ((u32)a[4] & COPY)))
		return r->ret;
	const int kind = sf_ipc_kind(nr);
	if (is_get(nr)) {
		if (known(kind, 0, (s32)r->ret))
			return r->ret;
		const s64 own = makes(nr, a);
		if (own >= 0 && !sf_ipc_numbered(kind, (s32)r->ret, (s32)own))
			return -ENOSPC;
		return own < 0 ? own : r->ret;
	}
	const s64 own = does(nr, a);
	if (own == r->ret && nr == NR_msgrcv && !sf_matches(r, c, a, own, 0))
		return -EBADMSG;
	if (own >= 0)
		changed_ipc(nr, a);
	return own;
}
