/* Settle: small files that are mapped shared and writable, and that others write to as well.
 *
 * A page of a view that was never stored to follows the file (shared.c), so two replicas that
 * read it a moment apart may find different bytes where another process stores to the same
 * file: the counters that every command of a toolchain keeps in one file, the index of a database.
 * Of few pages every replica therefore holds copies, of the view and of its ref, and what
 * others have stored comes to them as an event:
 *
 *   call made ──► leader: window and ref differ? ──► SF_R_SETTLE ──► event: the file's bytes ──► view, ref
 *
 * Who learns of an effect of another process finds its stores, as bare: the leader looks at the
 * end of every call. What the program has stored and the file does not have yet stays.
 *
 * Invariants
 *  1. View and ref of a settled mapping are copies of this replica's, equal in all of them
 *     wherever they stand at the same event.
 *  2. Write-back stores the bytes in which view and ref differ, and makes them equal.
 *
 * Not covered: a loop that waits for another program's store and makes no call.
 */
#include "agent.h"

#define PAGE 4096ull
#define PROT_READ 1
#define PROT_WRITE 2

/* Compared at the end of each call, at some 60 ns a page: 1 us is what a rendezvous costs. */
#define PAGES_MAX 16u

static u64 window_settle(const struct sf_map *m, u64 page)
{
	return m->ref + (page - m->start) + (SF_WINDOWS - SF_REFS);
}

static u64 *ref_of(const struct sf_map *m, u64 page)
{
	return (u64 *)(m->ref + (page - m->start));
}

/* Leader: what a new mapping of `len` bytes is to be, besides `flags`. */
u32 sf_settle_wanted(u32 flags, u64 len)
{
	if (!(flags & SF_M_STORES) || app.domain || (G->options & SF_O_PAIR) || app.map_settled + len / PAGE > PAGES_MAX)
		return 0;
	return SF_M_SETTLED | SF_M_FRESH;
}

/* `base`: what the replicas hold of the file, or the file itself. Bytes that are equal are not stored. */
void sf_settle_merge(u64 *to, const u64 *from, const u64 *base)
{
	for (u32 i = 0; i < PAGE / 8; i++) {
		u64 d = base[i] ^ from[i];
		if (!d)
			continue;
		/* No byte of d is zero: bit tricks of Mycroft (1987). */
		if (!((d - 0x0101010101010101ull) & ~d & 0x8080808080808080ull)) {
			to[i] = from[i];
			continue;
		}
		for (u32 b = 0; b < 8; b++)
			if (d >> 8 * b & 0xff)
				((volatile u8 *)&to[i])[b] = ((const u8 *)&from[i])[b];
	}
}

/* Either may not be there: behind the end of the file. */
static int equal(const u64 *x, const u64 *y)
{
	volatile int same = 1;
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		u32 i = 0;
		while (i < PAGE / 8 && x[i] == y[i])
			i++;
		same = i == PAGE / 8;
	}
	me.guard = NULL;
	return same;
}

/* Leader, after a write-back of this page: whether others have stored to it as well. */
int sf_settle_differs(const struct sf_map *m, u64 page)
{
	return (m->flags & SF_M_SETTLED) && !equal((const u64 *)window_settle(m, page), (const u64 *)page);
}

static u32 due_settle(void)
{
	if (me.slot != 0 || app.spawn.active)
		return 0;
	for (u32 i = 0; i < app.maps; i++) {
		const struct sf_map *m = &app.map[i];
		if (!(m->flags & SF_M_SETTLED))
			continue;
		if (m->flags & SF_M_FRESH)
			return SF_R_SETTLE;
		for (u64 page = m->start; page < m->end; page += PAGE)
			if (!equal((const u64 *)window_settle(m, page), ref_of(m, page)))
				return SF_R_SETTLE;
	}
	return 0;
}

/* Leader: what a call's result is to bring along. */
u32 sf_settle_due(void)
{
	return unlikely(app.map_settled) ? due_settle() : 0;
}

/* Every replica: this page of the file has been written back. */
void sf_settle_written(const struct sf_map *m, u64 page)
{
	u64 *ref = ref_of(m, page);
	sys3(NR_mprotect, ref, PAGE, PROT_READ | PROT_WRITE);
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		memcpy(ref, (const void *)page, PAGE);
	}
	me.guard = NULL;
	sys3(NR_mprotect, ref, PAGE, PROT_READ);
}

/* The file holds `now`. */
static void take_settle(const struct sf_map *m, u64 page, const u64 *now)
{
	static u64 was[PAGE / 8];
	u64 *ref = ref_of(m, page), *view = (u64 *)page;
	u64 prot = m->flags >> SF_M_PROT & 7;
	sys3(NR_mprotect, ref, PAGE, PROT_READ | PROT_WRITE);
	sys3(NR_mprotect, page, PAGE, PROT_READ | PROT_WRITE);
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		memcpy(was, view, PAGE);
		memcpy(view, now, PAGE);
		if (!(m->flags & SF_M_FRESH))
			sf_settle_merge(view, was, ref);
		memcpy(ref, now, PAGE);
	}
	me.guard = NULL;
	sys3(NR_mprotect, page, PAGE, prot);
	sys3(NR_mprotect, ref, PAGE, PROT_READ);
}

/* ---- the event ---- */

struct news {
	u64 page;
	u64 bytes[PAGE / 8];
};

static enum sf_claim claim_settle(struct sf_event *e, struct sf_regs *r, void *arg)
{
	(void)r, (void)arg;
	me.own_event = 1;
	*e = (struct sf_event){ .seq = me.next, .nr = NR_msync, .kind = SF_K_SYSCALL };
	e->args[0] = app.map_settled;
	return SF_CLAIMED;
}

static int look_settle(struct news *n, const struct sf_map *m, u64 page)
{
	volatile int there = 0;
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		n->page = page;
		memcpy(n->bytes, (const void *)window_settle(m, page), PAGE);
		there = 1;
	}
	me.guard = NULL;
	return there && ((m->flags & SF_M_FRESH) || !equal(n->bytes, ref_of(m, page)));
}

static const struct sf_result *act_settle(struct sf_event *e, void *arg)
{
	static struct news news;
	struct sf_result *res = sf_result_begin(e, 0);
	(void)arg;
	for (u32 i = 0; i < app.maps; i++) {
		const struct sf_map *m = &app.map[i];
		for (u64 page = m->start; (m->flags & SF_M_SETTLED) && page < m->end; page += PAGE)
			if (look_settle(&news, m, page))
				sf_result_bytes(res, &news, sizeof news);
	}
	sf_result_end(res);
	return res;
}

static int done_settle(struct sf_event *e, const struct sf_result *res, void *arg)
{
	const struct news *n = (const void *)(PAYLOAD + res->out_off);
	(void)e, (void)arg;
	for (u32 k = res->out_len / sizeof *n; k--; n++)
		for (u32 i = 0; i < app.maps; i++)
			if ((app.map[i].flags & SF_M_SETTLED) && app.map[i].start <= n->page && n->page < app.map[i].end)
				take_settle(&app.map[i], n->page, n->bytes);
	for (u32 i = 0; i < app.maps; i++)
		app.map[i].flags &= ~SF_M_FRESH;
	return 0;
}

static const struct sf_step settles = { claim_settle, NULL, act_settle, NULL, done_settle, 0 };
static const struct sf_step settles_there = { claim_settle, NULL, act_settle, NULL, done_settle, 1 };

/* The event after a result marked SF_R_SETTLE. */
void sf_settle(struct sf_regs *r)
{
	struct sf_event e;
	me.doing = SF_D_ENTROPY;
	me.doing_desc = SF_DESC_SETTLE;
	sf_event(&e, r, &settles, NULL);
}

/* The same behind a write-back. 1: this replica has become another. */
int sf_settle_there(struct sf_regs *r)
{
	struct sf_event e;
	return sf_event(&e, r, &settles_there, NULL) == SF_UNDONE;
}
