/* Owner: locks of processes that were killed.
 *
 * A robust lock names its owner, and the kernel marks it when that one ends (get_robust_list(2)). Of a process that ends by its own
 * will, or as all its replicas have agreed, the agent does so (futex.c). One that another process kills is gone before its
 * replicas know, and each of them has a copy of what it shared: whoever waits for such a lock finds out, and marks it.
 *
 *   FUTEX_WAIT: the word says that its owner is waited for ──► in the kernel for a while ──► does that process live? ──► on
 *     ──► no: an answer of the agent's own ──► every replica marks the word, when it has its turn ──► as if woken
 *
 * What no process of the tree has as its number, nor any other as its own, has ended. That the word is in a list of robust locks
 * shows the word that leads on from it: a lock that nobody has leads nowhere.
 *
 * Not covered: a pair, whose sites know processes by other numbers; who never waits (pthread_mutex_trylock(3)); locks with priority
 * inheritance, which several processes cannot have.
 */
#include "agent.h"
#include <asm/errno.h>

#define WAITERS 0x80000000u
#define OWNER_DIED 0x40000000u
#define TID 0x3fffffffu
#define SLICE 50000000ull /* nanoseconds between two looks: who dies with a lock is rare */
#define NUMBERS (((1u << 28) - SF_TID_FIRST) >> 7) /* of processes whose threads have numbers of their own (thread.h) */
#define NUMBER_MAX (1u << 22)

static int waits_for_owner(const u64 a[6])
{
	const u32 op = (u32)a[1] & FUTEX_CMD;
	if (G->options & SF_O_PAIR)
		return 0;
	return (op == FUTEX_WAIT || (op == FUTEX_WAIT_BITSET && (u32)a[5] == ~0u)) && !(a[1] & FUTEX_PRIVATE) && ((u32)a[2] & WAITERS) &&
	       ((u32)a[2] & TID) && app.robust && sf_domain_word(a[0]);
}

static int lives_as(u32 number)
{
	return sf_is_alive(number) || sf_rpc(SF_RPC_LIVES, number, 0, 0, 0, 0) != 0;
}

static u64 asked; /* when the launcher was */

/* Leader: whether the owner of what the call waits for has ended without a mark. */
int sf_owner_died(const u64 a[6])
{
	const u32 tid = (u32)a[2] & TID;
	u32 number = tid < SF_TID_FIRST ? tid : (tid - SF_TID_FIRST) >> 7;
	u64 head[3], next;
	if (!waits_for_owner(a) || number == G->leader_pid || sf_is_alive(number) || sf_now() - asked < SLICE)
		return 0;
	asked = sf_now();
	if (sf_user_bytes(head, app.robust, sizeof head) < 0 || sf_user_bytes(&next, a[0] - head[1], sizeof next) < 0 || !next)
		return 0;
	for (; number < NUMBER_MAX; number += NUMBERS) {
		if (lives_as(number))
			return 0;
		if (tid < SF_TID_FIRST)
			break;
	}
	return 1;
}

/* Leader: the call is made in slices, between which it looks. `left`: nanoseconds, of a limit. 0: the call is to be made as it is. */
int sf_owner_slice(const u64 a[6], u64 call[7], u64 left, s64 limit[2])
{
	if (likely(!waits_for_owner(a)) || left <= SLICE)
		return 0;
	limit[0] = 0;
	limit[1] = SLICE;
	call[2] = FUTEX_WAIT;
	call[4] = (u64)limit;
	return 1;
}

/* Every replica: the leader has found that. */
void sf_owner_note(const u64 a[6])
{
	app.dead_word = a[0];
	app.dead_tid = (u32)a[2] & TID;
	if (!app.domain)
		sf_owner_mark();
}

/* ... and has its turn. */
void sf_owner_mark(void)
{
	u32 v;
	if (sf_user_bytes(&v, app.dead_word, sizeof v) == 0 && (v & TID) == app.dead_tid) {
		v = (v & WAITERS) | OWNER_DIED;
		sf_user_put(app.dead_word, &v, sizeof v);
	}
	app.dead_word = 0;
}
