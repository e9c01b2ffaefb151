/* Parked: threads that wait for a word of several processes, where the kernel does not know of them.
 *
 * A thread that waits for such a word is parked while others of its process could go on (try.c). FUTEX_WAKE of any process has to
 * find it all the same, so it stands in a list in the page that all processes of the tree have (domain.c). The list is of
 * leaders alone: what a wait or a wake answers is a result in the log, and followers take it from there.
 *
 *   free ──► taken ──► parked ──► granted ──► free       a wake has counted it, and its thread goes on
 *              ▲          ├────────────────► free        its time is over, or a handler comes
 *              └──────────┘                              FUTEX_REQUEUE: it waits for another word
 *
 * A wake takes the kernel's waiters first, and those in the list in the order in which they came. One that was granted is kept
 * where a handler has ended the wait: the thread's next wait for the same word has it.
 *
 * Each state is one word with a check of its own, which changes by a compare and exchange; the rest of an entry is written
 * while it is taken, and has another check. Who finds one that was struck raises the alarm.
 *
 * Not covered: more threads than there are entries. Those are not counted, and go on after a look as if they had been woken.
 * See futex(2).
 */
#include "agent.h"
#include <asm/errno.h>

enum { FREE, TAKEN, PARKED, GRANTED };

struct parked {
	u64 word; /* state, how often it has changed, who is writing; sealed; 0: free as well */
	u64 key;   /* the word waited for (domain.c) */
	u64 owner; /* the process as the program knows it, and above it the index of the thread */
	u64 order;
	u32 pid;   /* the process as the kernel knows it */
	u32 bitset;
	u64 check; /* of the rest, as of that state */
};
struct list_parked {
	u64 order;
	struct parked at[SF_PARKED_MAX];
};
_Static_assert(sizeof(struct list_parked) <= 4096 - SF_PARKED_AT, "in the domain's page");
#define L ((struct list_parked *)(SF_DOMAIN + SF_PARKED_AT))

/* ---- states ---- */

#define TIMES 0xffffull
#define STATE(w) ((u32)((w) & 3))
#define TIMES_OF(w) ((w) >> 2 & TIMES)
#define WRITER(w) ((u32)((w) >> 18 & 0x3fffff))

static u32 crc_parked(u64 a, u64 b)
{
	u64 c = 0xffffffff;
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(a));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(b));
	return (u32)c;
}

static u64 sealed(u32 state, u64 times, u32 writer)
{
	const u64 w = state | (times & TIMES) << 2 | (u64)(writer & 0x3fffff) << 18;
	return w | (u64)(crc_parked(w, 0) & 0xffffff) << 40;
}

static int is_sealed(u64 w)
{
	return !w || sealed(STATE(w), TIMES_OF(w), WRITER(w)) == w;
}

/* 1: it was as `*word` says, which says what it is now. */
static int becomes(struct parked *p, u64 *word, u32 state)
{
	u64 from = *word;
	const u64 to = sealed(state, TIMES_OF(from) + 1, state == TAKEN ? (u32)sys0(NR_getpid) : 0);
	if (!__atomic_compare_exchange_n(&p->word, &from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		return 0;
	*word = to;
	return 1;
}

static u64 sum_parked(const struct parked *p)
{
	return (u64)crc_parked(p->key, p->owner) << 32 | crc_parked(p->order, (u64)p->pid << 32 | p->bitset);
}

/* One that this process is writing. */
static void is_written(struct parked *p, u64 word)
{
	p->check = sum_parked(p);
	becomes(p, &word, PARKED);
}

/* What an entry holds, as of one moment. 0: it has changed meanwhile, or is struck. */
static u64 look_parked(const struct parked *p, struct parked *copy)
{
	const u64 w = load(&p->word);
	if (STATE(w) < PARKED || !is_sealed(w))
		return 0;
	copy->key = load(&p->key);
	copy->owner = load(&p->owner);
	copy->order = load(&p->order);
	copy->pid = load(&p->pid);
	copy->bitset = load(&p->bitset);
	copy->check = load(&p->check);
	return load(&p->word) == w && copy->check == sum_parked(copy) ? w : 0;
}

/* Leader, before it looks at the list for a call: 0: something in it was struck, and the alarm is raised. */
int sf_parked_sound(void)
{
	for (u32 i = 0; i < SF_PARKED_MAX; i++) {
		struct parked *p = &L->at[i], copy;
		const u64 w = load(&p->word);
		if (likely(STATE(w) < PARKED && is_sealed(w)))
			continue;
		if (!look_parked(p, &copy) && load(&p->word) == w) {
			sf_raise(SF_A_LOG, me.next);
			return 0;
		}
	}
	return 1;
}

/* ---- whose they are ---- */

/* A process that has ended may have a parent that has not waited for it yet. */
int sf_is_alive(u32 pid)
{
	struct {
		s32 fd;
		u16 events, revents;
	} p = { -1, 1 /* POLLIN */, 0 };
	s64 fd;
	if (pid == (u32)sys0(NR_getpid))
		return 1;
	fd = sys2(NR_pidfd_open, pid, 0);
	if (fd < 0)
		return fd != -ESRCH;
	p.fd = (s32)fd;
	const s64 ended = sys3(NR_poll, &p, 1, 0);
	sys1(NR_close, fd);
	return ended <= 0;
}

static u64 own_parked(u32 index)
{
	return G->leader_pid | (u64)index << 32;
}

/* One that another process has wait for another word is taken for a moment; who has died with it gives it back so. */
static void awaited(struct parked *p, u64 owner)
{
	u64 w;
	while (w = load(&p->word), STATE(w) == TAKEN && load(&p->owner) == owner && is_sealed(w)) {
		if (!sf_is_alive(WRITER(w)) && becomes(p, &w, FREE))
			return;
		sys0(NR_sched_yield);
	}
}

/* The entry of a thread of this process. */
static struct parked *entry_parked(u32 index, u64 *word, struct parked *copy)
{
	for (u32 i = 0; i < SF_PARKED_MAX; i++) {
		awaited(&L->at[i], own_parked(index));
		*word = look_parked(&L->at[i], copy);
		if (*word && copy->owner == own_parked(index))
			return &L->at[i];
	}
	return NULL;
}

/* Whether the process of an entry goes on, under a leader that is yet to be made too. */
static int goes_on(const struct parked *copy)
{
	return sf_is_alive(copy->pid) || (!sf_alone() && sf_rpc(SF_RPC_LATE, (u32)copy->owner, 0, 0, 0, 0) == 1);
}

/* An entry that nobody has. If there is none: one of a process that has ended. */
static struct parked *take_entry(u64 *word)
{
	struct parked copy;
	for (u32 i = 0; i < SF_PARKED_MAX; i++) {
		*word = load(&L->at[i].word);
		if (STATE(*word) == FREE && is_sealed(*word) && becomes(&L->at[i], word, TAKEN))
			return &L->at[i];
	}
	for (u32 i = 0; i < SF_PARKED_MAX; i++) {
		const u64 w = *word = load(&L->at[i].word);
		const int is_left = STATE(w) == TAKEN ? WRITER(w) && !sf_is_alive(WRITER(w))
						      : look_parked(&L->at[i], &copy) == w && copy.pid && !goes_on(&copy);
		if (STATE(w) != FREE && is_left && becomes(&L->at[i], word, TAKEN))
			return &L->at[i];
	}
	return NULL;
}

/* ---- who waits ---- */

static u32 grants(u64 key, u32 n, u32 bitset);

/* Whether a wake has counted the running thread: that is used up. `again`: it is parked, and waits for what it waited for. */
int sf_parked_takes(u64 key, int again)
{
	struct parked copy;
	u64 w;
	struct parked *p = entry_parked(app.current, &w, &copy);
	if (!p || STATE(w) != GRANTED || !becomes(p, &w, FREE))
		return 0;
	if (again || copy.key == key)
		return 1;
	grants(copy.key, 1, ~0u); /* a handler has ended that wait: another thread's */
	return 0;
}

int sf_parked_granted(u32 index)
{
	struct parked copy;
	u64 w;
	return entry_parked(index, &w, &copy) && STATE(w) == GRANTED;
}

/* The running thread, which a wake is to find from here on. 0: there is no room. */
int sf_parked_begins(u64 key, u32 bitset)
{
	u64 w;
	struct parked *p = key ? take_entry(&w) : NULL;
	if (!p)
		return 0;
	p->key = key;
	p->owner = own_parked(app.current);
	p->order = __atomic_add_fetch(&L->order, 1, __ATOMIC_SEQ_CST);
	p->pid = (u32)sys0(NR_getpid);
	p->bitset = bitset;
	is_written(p, w);
	return 1;
}

/* Whether the running thread is in the list still, and for which word. A leader that was made again is another process. */
int sf_parked_stands(u64 *key)
{
	struct parked copy;
	u64 w;
	struct parked *p = entry_parked(app.current, &w, &copy);
	if (!p)
		return 0;
	*key = copy.key;
	if (copy.pid != (u32)sys0(NR_getpid) && STATE(w) == PARKED && becomes(p, &w, TAKEN)) {
		p->pid = (u32)sys0(NR_getpid);
		is_written(p, w);
	}
	return 1;
}

/* A thread does not wait any more. 1: a wake has come before. */
int sf_parked_leaves(u32 index)
{
	struct parked copy;
	u64 w;
	struct parked *p = entry_parked(index, &w, &copy);
	return p && !(STATE(w) == PARKED && becomes(p, &w, FREE));
}

/* Leader: a thread ends, or with SF_NOBODY all threads of its process. */
void sf_parked_ends(u32 index)
{
	struct parked copy;
	for (u32 i = 0; i < SF_PARKED_MAX; i++) {
		u64 w = look_parked(&L->at[i], &copy);
		if (w && (u32)copy.owner == G->leader_pid && (index == SF_NOBODY || copy.owner == own_parked(index)) &&
		    !becomes(&L->at[i], &w, FREE))
			i--; /* a wake, or somebody who has it wait for another word */
	}
}

/* ---- who wakes ---- */

static struct parked *oldest(u64 key, u32 bitset, u64 *word)
{
	struct parked copy, *best = NULL;
	u64 order = 0;
	for (u32 i = 0; i < SF_PARKED_MAX; i++) {
		const u64 w = look_parked(&L->at[i], &copy);
		if (!w || STATE(w) != PARKED || copy.key != key || !(copy.bitset & bitset) || (best && copy.order > order) ||
		    !goes_on(&copy))
			continue;
		best = &L->at[i];
		order = copy.order;
		*word = w;
	}
	return best;
}

static u32 grants(u64 key, u32 n, u32 bitset)
{
	struct parked *p;
	u64 w;
	u32 woken = 0;
	while (key && woken < n && (p = oldest(key, bitset, &w)))
		woken += (u32)becomes(p, &w, GRANTED);
	return woken;
}

/* They wait for another word from here on, or for one that is not shared: those go on. */
static u32 requeues(u64 from, u64 to, u32 n)
{
	struct parked *p;
	u64 w;
	u32 moved = 0;
	if (!to)
		return grants(from, n, ~0u);
	while (from && from != to && moved < n && (p = oldest(from, ~0u, &w))) {
		if (!becomes(p, &w, TAKEN))
			continue;
		p->key = to;
		is_written(p, w);
		moved++;
	}
	return moved;
}

static u32 at_most(s32 n, u32 already)
{
	return n > 0 && (u32)n > already ? (u32)n - already : 0;
}

/* A call of the leader's that may wake has been made, and the kernel has answered `r`. What it answers the program. */
s64 sf_parked_hear(const u64 a[6], s64 r)
{
	const u32 op = (u32)a[1] & FUTEX_CMD;
	const u64 key = sf_domain_key(a[0]);
	const s32 n = (s32)a[2] > 0 ? (s32)a[2] : 1; /* the kernel takes 0 for 1 */
	if ((a[1] & FUTEX_PRIVATE) || r < 0)
		return r;
	switch (op) {
	case FUTEX_WAKE: return r + grants(key, at_most(n, (u32)r), ~0u);
	case FUTEX_WAKE_BITSET: return r + grants(key, at_most(n, (u32)r), (u32)a[5]);
	case FUTEX_REQUEUE:
	case FUTEX_CMP_REQUEUE: {
		const u32 woken = (u32)r < (u32)a[2] ? (u32)r : (u32)a[2], moved = (u32)r - woken;
		r += grants(key, at_most((s32)a[2], woken), ~0u);
		return r + requeues(key, sf_domain_key(a[4]), at_most((s32)a[3], moved));
	}
	case FUTEX_WAKE_OP: /* how many of either word is not told: more may go on than have to, and none fewer */
		r += grants(key, (u32)n, ~0u);
		return r + grants(sf_domain_key(a[4]), (s32)a[3] > 0 ? (u32)a[3] : 1, ~0u);
	}
	return r;
}

/* Leader: others hear of a lock whose owner has ended. */
void sf_parked_wake_one(u64 word)
{
	const s64 r = sys3(NR_futex, sf_shared_word(word), FUTEX_WAKE, 1);
	if (r == 0)
		grants(sf_domain_key(word), 1, ~0u);
}
