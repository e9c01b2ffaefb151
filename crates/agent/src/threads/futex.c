/* Futex: words for which threads wait, in the agent.
 *
 * No kernel takes part: a replica compares the word in its own memory, parks the thread that waits and
 * makes ready whom a wake finds, first come first served. So the outcome is a function of the log and
 * equal in all replicas. A wait for a word of several processes is a call to the kernel (domain.c, try.c).
 *
 * Who releases a lock may take it again before the one that it has woken has its turn. So that nobody waits for ever, a thread
 * that was woken in vain keeps its place in the line, and the next wake hands over to it (wake).
 *
 * Not covered: FUTEX_WAIT_REQUEUE_PI and FUTEX_CMP_REQUEUE_PI, which the C libraries no longer use:
 * ENOSYS. Priorities: who waits first comes first.
 * See futex(2), get_robust_list(2).
 */
#include "agent.h"
#include <asm/errno.h>

#define REALTIME 256u
#define WAITERS 0x80000000u
#define OWNER_DIED 0x40000000u
#define TID 0x3fffffffu
#define SECOND 1000000000ull
#define ROBUST_LIMIT 2048 /* as the kernel's ROBUST_LIST_LIMIT */

static int aligned_word(u64 at, u32 *v)
{
	return at & 3 ? -EINVAL : sf_user_bytes(v, at, 4) < 0 ? -EFAULT : 0;
}

static u64 ns(const s64 t[2])
{
	return (u64)t[0] * SECOND + (u64)t[1];
}

/* When a wait is over, in CLOCK_MONOTONIC; 0: never. `*at` is the leader's, who alone reads clocks. */
static s64 until(u64 limit, int absolute, int real, u64 *at, int leads)
{
	s64 t[2], now[2] = { 0, 0 };
	u64 none = 0;
	if (!limit) {
		*at = none;
		return 0;
	}
	if (sf_user_bytes(t, limit, sizeof t) < 0)
		return -EFAULT;
	if (t[0] < 0 || (u64)t[1] >= SECOND)
		return -EINVAL;
	if (!leads)
		return 0;
	if (t[0] >> 33) { /* centuries */
		*at = none;
		return 0;
	}
	u64 mono = sf_now();
	if (!absolute) {
		*at = mono + ns(t);
	} else if (!real) {
		*at = ns(t);
	} else {
		u64 a[6] = { 0, (u64)now, 0, 0, 0, 0 };
		s64 r;
		if (!sf_clock(228, a, &r))
			sys2(NR_clock_gettime, 0, now);
		u64 left = ns(t) > ns(now) ? ns(t) - ns(now) : 0;
		*at = mono + left;
	}
	if (!*at)
		*at = 1;
	return 0;
}

static void wait_for_word(u64 word, u32 bitset, u64 deadline, u32 pi)
{
	struct sf_thread *t = sf_thread_now();
	t->state = SF_TH_FUTEX;
	t->in_vain = t->woken == word;
	t->since = t->in_vain ? t->place : sf_thread_order();
	t->place = t->since;
	t->woken = 0;
	t->word = word;
	t->bitset = bitset;
	t->deadline = deadline;
	t->retry = 0;
	t->nr = NR_futex;
	t->pi = pi;
	app.turn |= SF_TURN_GIVE;
}

/* Who has waited longest. */
static struct sf_thread *waiter(u64 word, u32 bitset)
{
	struct sf_thread *best = NULL;
	for (u32 i = 0; i < sf_thread_top(); i++) {
		struct sf_thread *t = sf_thread_at(i);
		if (t->state == SF_TH_FUTEX && t->word == word && (t->bitset & bitset) && (!best || t->since < best->since))
			best = t;
	}
	return best;
}

/* It was woken in vain before: it has its turn at once, since what it waits for has just been given. It comes before all that are
 * ready, as it was the first of them when it had its turn last. */
static void wake(struct sf_thread *t)
{
	t->regs.rax = 0;
	t->deadline = 0;
	t->woken = !t->pi && sf_user_bytes(&t->found, t->word, 4) >= 0 ? t->word : 0;
	t->word = 0;
	t->pi = 0;
	if (t->in_vain) {
		t->state = SF_TH_READY;
		app.turn |= SF_TURN_GIVE;
	} else {
		sf_thread_ready(t);
	}
}

/* A thread that was woken has its turn. If somebody has changed the word since, it may have come too late. */
void sf_futex_goes_on(struct sf_thread *t)
{
	u32 v;
	if (t->woken && (sf_user_bytes(&v, t->woken, 4) < 0 || v == t->found))
		t->woken = 0;
}

u32 sf_futex_wake(u64 word, u32 n, u32 bitset)
{
	u32 woken = 0;
	struct sf_thread *t;
	while (woken < n && (t = waiter(word, bitset))) {
		wake(t);
		woken++;
	}
	return woken;
}

/* Memory has become that of several processes: whoever waits for a word there begins again, as one that other processes wake. */
void sf_futex_shared(void)
{
	for (u32 i = 0; i < sf_thread_top(); i++) {
		struct sf_thread *t = sf_thread_at(i);
		struct sf_regs *r = &t->regs;
		if (t->state != SF_TH_FUTEX || t->pi || (r->rsi & FUTEX_PRIVATE) || !sf_domain_word(t->word))
			continue;
		r->rax = NR_futex;
		r->rcx = r->rip;
		r->rip = (u64)sf_entry_syscall;
		sf_thread_ready(t);
	}
}

static s64 wait(const u64 a[6], u32 bitset, int absolute, u64 *deadline, int leads)
{
	u32 v;
	s64 r;
	if (!bitset)
		return -EINVAL;
	r = until(a[3], absolute, (a[1] & REALTIME) != 0, deadline, leads);
	if (!r)
		r = aligned_word(a[0], &v);
	if (r)
		return r;
	if (v != (u32)a[2])
		return -EAGAIN;
	wait_for_word(a[0], bitset, *deadline, 0);
	return 0;
}

static s64 requeue(const u64 a[6], int compare)
{
	u32 v;
	s64 r = aligned_word(a[0], &v);
	if (r || (a[4] & 3))
		return r ? r : -EINVAL;
	if ((s32)a[2] < 0 || (s32)a[3] < 0)
		return -EINVAL;
	if (compare && v != (u32)a[5])
		return -EAGAIN;
	u32 n = sf_futex_wake(a[0], (u32)a[2], ~0u), moved = 0;
	struct sf_thread *t;
	while (a[0] != a[4] && moved < (u32)a[3] && (t = waiter(a[0], ~0u))) {
		t->word = a[4];
		moved++;
	}
	return n + moved;
}

/* futex(2), FUTEX_WAKE_OP: change the second word, wake on the first, and on the second if its old value compares. */
static s64 wake_op(const u64 a[6])
{
	u32 code = (u32)a[5], op = code >> 28 & 7, cmp = code >> 24 & 15, old, new;
	s32 arg = (s32)(code << 8) >> 20, with = (s32)(code << 20) >> 20;
	s64 r = aligned_word(a[4], &old);
	if (r || (a[0] & 3))
		return r ? r : -EINVAL;
	if (code >> 31)
		arg = (s32)(1u << (arg & 31));
	switch (op) {
	case 0: new = (u32)arg; break;
	case 1: new = old + (u32)arg; break;
	case 2: new = old | (u32)arg; break;
	case 3: new = old & ~(u32)arg; break;
	case 4: new = old ^ (u32)arg; break;
	default: return -ENOSYS;
	}
	if (cmp > 5)
		return -ENOSYS;
	if (sf_user_put(a[4], &new, 4))
		return -EFAULT;
	const s32 was = (s32)old;
	const int holds[] = { was == with, was != with, was<with, was <= with, was> with, was >= with };
	u32 n = sf_futex_wake(a[0], (u32)a[2], ~0u);
	if (holds[cmp])
		n += sf_futex_wake(a[4], (u32)a[3], ~0u);
	return n;
}

static int lives(u32 tid)
{
	for (u32 i = 0; i < sf_thread_top(); i++)
		if (sf_thread_at(i)->state != SF_TH_FREE && sf_thread_at(i)->tid == tid)
			return 1;
	return 0;
}

static s64 lock_pi(const u64 a[6], int tries, int real, u64 *deadline, int leads)
{
	u32 v, own = sf_thread_id();
	s64 r = until(tries ? 0 : a[3], 1, real, deadline, leads);
	if (!r)
		r = aligned_word(a[0], &v);
	if (r)
		return r;
	if ((v & TID) == own)
		return -EDEADLK;
	if (!(v & TID)) {
		v = (v & OWNER_DIED) | own | (waiter(a[0], ~0u) ? WAITERS : 0);
		return sf_user_put(a[0], &v, 4) ? -EFAULT : 0;
	}
	if (!lives(v & TID))
		return -ESRCH;
	if (tries)
		return -EAGAIN;
	v |= WAITERS;
	if (sf_user_put(a[0], &v, 4))
		return -EFAULT;
	wait_for_word(a[0], ~0u, *deadline, 1);
	return 0;
}

static s64 hand_over(u64 word, u32 marks)
{
	struct sf_thread *t = waiter(word, ~0u);
	u32 v = marks;
	if (t) {
		v |= t->tid;
		wake(t);
		if (waiter(word, ~0u))
			v |= WAITERS;
	}
	return sf_user_put(word, &v, 4) ? -EFAULT : 0;
}

static s64 unlock_pi(u64 word)
{
	u32 v;
	s64 r = aligned_word(word, &v);
	if (r)
		return r;
	return (v & TID) != sf_thread_id() ? -EPERM : hand_over(word, 0);
}

/* One call of the program's, in every replica. */
s64 sf_futex(const u64 a[6], u64 *deadline, int leads)
{
	switch (a[1] & FUTEX_CMD) {
	case FUTEX_WAIT: return wait(a, ~0u, 0, deadline, leads);
	case FUTEX_WAIT_BITSET: return wait(a, (u32)a[5], 1, deadline, leads);
	case FUTEX_WAKE: return a[0] & 3 ? -EINVAL : (s64)sf_futex_wake(a[0], (u32)a[2] ? (u32)a[2] : 1, ~0u);
	case FUTEX_WAKE_BITSET: return a[0] & 3 || !(u32)a[5] ? -EINVAL : (s64)sf_futex_wake(a[0], (u32)a[2] ? (u32)a[2] : 1, (u32)a[5]);
	case FUTEX_REQUEUE: return requeue(a, 0);
	case FUTEX_CMP_REQUEUE: return requeue(a, 1);
	case FUTEX_WAKE_OP: return wake_op(a);
	case FUTEX_LOCK_PI: return lock_pi(a, 0, 1, deadline, leads);
	case FUTEX_LOCK_PI2: return lock_pi(a, 0, (a[1] & REALTIME) != 0, deadline, leads);
	case FUTEX_TRYLOCK_PI: return lock_pi(a, 1, 0, deadline, leads);
	case FUTEX_UNLOCK_PI: return unlock_pi(a[0]);
	}
	return -ENOSYS;
}

/* One lock of a thread that ends. */
static void owner_dies(u64 word, int pi, u32 tid)
{
	u32 v;
	if (aligned_word(word, &v) || (v & TID) != tid)
		return;
	if (pi) {
		hand_over(word, OWNER_DIED);
		return;
	}
	u32 waits = v & WAITERS;
	v = waits | OWNER_DIED;
	if (sf_user_put(word, &v, 4) || !waits)
		return;
	sf_futex_wake(word, 1, ~0u);
	if (me.slot == 0)
		sf_parked_wake_one(word);
}

/* The robust list of a thread that ends: struct robust_list_head, bit 0 of an entry says PI. */
void sf_futex_leave(u64 robust, u32 tid)
{
	u64 head[3], entry, next;
	if (!robust || sf_user_bytes(head, robust, sizeof head) < 0)
		return;
	entry = head[0];
	for (u32 i = 0; i < ROBUST_LIMIT && (entry & ~1ull) != robust; i++, entry = next) {
		if (sf_user_bytes(&next, entry & ~1ull, 8) < 0)
			break;
		if (entry != head[2])
			owner_dies((entry & ~1ull) + head[1], entry & 1, tid);
	}
	if (head[2])
		owner_dies((head[2] & ~1ull) + head[1], head[2] & 1, tid);
}
