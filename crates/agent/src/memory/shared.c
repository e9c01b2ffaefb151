/* Shared: files mapped MAP_SHARED, and how stores to them reach the file.
 *
 * Stores to memory are no events, so a file must not see them before they were agreed on.
 * Each such mapping is therefore made of up to three:
 *
 *   view    what the program sees. Private, in every replica, at equal addresses
 *   ref     the file as it is. Private, read-only, in every replica, in the agent's range
 *   window  the way to the file. Shared, in the leader alone, writable only during write-back
 *
 * A page of a view that was never stored to is the page cache's own, so it follows the file;
 * one that was is the replica's copy, and dirty as far as it differs from its ref. Write-back
 * is an event: every replica digests its dirty pages, all vote, the leader carries the bytes
 * that differ through the window, and every replica gives its copies back to the kernel, so
 * that the views follow the file again.
 *
 *   store ──► copy of the page ──► event: digests equal? ──► window ──► file ──► copy dropped
 *
 * It happens before msync, munmap and the like, before the program ends in any agreed way,
 * before a call on a descriptor of the same file, and (up to PROMPT bytes of writable views)
 * before every call whose effect others can see: who learns of an effect finds the stores
 * that came before it.
 *
 * Invariants
 *  1. No byte of a view reaches a file before all live replicas have agreed on its page. The
 *     leader digests each page once more as it copies it out of the program's reach.
 *  2. Bytes that equal the file's are not written: a page that others wrote to elsewhere in
 *     the meantime keeps what they wrote, except where they wrote between store and write-back.
 *  3. The table of mappings is equal in all replicas (struct sf_mirror); only the leader
 *     talks to the launcher, which keeps each file for a leader that has to be made anew.
 *
 * Small mappings do not follow the file by themselves: settle.c.
 *
 * At a fork the copy has the views as well, and a window. From then on the two have turns (domain.c), and whoever gives his
 * turn writes back before: so each finds in the file what the others have stored, as if the memory were one. Another program
 * of the tree that maps such a file by its name joins them.
 *
 * Not covered: others who store to the same bytes at the same time; a file of which two parts
 * of the program's memory show the same bytes, one of them writable (refused); a store to a
 * file system without room kills with SIGBUS as it does bare, but only at write-back; stores
 * since the last event when the group is killed from outside. A re-run (epoch.c) sees files as
 * they were at its snapshot only in pages that write-back changed, up to UNDO_MAX of them:
 * what else changes a mapped file ends what can be run again, until the next snapshot.
 * See mmap(2), msync(2), proc_pid_pagemap(5).
 */
#include "agent.h"
#include "ground/stat.h"
#include "memory/pagemap.h"
#include <asm/errno.h>

#define PAGE 4096ull
#define PROT_READ 1
#define PROT_WRITE 2
#define PROT_EXEC 4
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_SHARED_VALIDATE 3
#define MAP_TYPE 0xf
#define MAP_FIXED 0x10
#define MAP_32BIT 0x40
#define MAP_ANONYMOUS 0x20
#define MAP_NORESERVE 0x4000
#define MAP_LOCKED 0x2000
#define MAP_POPULATE 0x8000
#define MAP_SYNC 0x80000
#define MAP_FIXED_NOREPLACE 0x100000
#define MREMAP_MAYMOVE 1
#define MREMAP_FIXED 2
#define MADV_DONTNEED 4
#define MADV_REMOVE 9
#define MADV_DONTFORK 10
#define MADV_POPULATE_WRITE 23
#define MADV_DONTNEED_LOCKED 24
#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IFCHR 0020000
#define SIGBUS 7

/* Pages that one event carries. 256 pages take about 0.3 ms to digest and as long to write:
 * far above the microsecond that a rendezvous costs, far below what anybody waits for. */
#define BATCH 256u

/* Up to this much of writable views is looked through before every effect that others can
 * see: 256 page table entries at some 40 ns each if all are in use, and 5 us for procfs. */
#define PROMPT (1ull << 20)

/* Up to so many pages it is cheaper to compare them all (0.2 us each) than to ask procfs. */
#define FEW 16u

/* Parts of views: those in an address range, or those of one file. A copy that equals its file
 * is given back too, lest it hide what is about to be written to the file, unless `glance` says
 * that nothing is. */
struct part {
	u64 lo, hi, dev, ino, glance;
};
static const struct part everything = { 0, ~0ull, 0, 0, 0 };

static struct dirty {
	u64 page;
	u32 map;
	struct sf_hash hash;
} dirty[BATCH];

static u64 window_shared(u64 ref)
{
	return ref + (SF_WINDOWS - SF_REFS);
}

NORETURN static void refuse(u32 what)
{
	sf_end(SF_E_REFUSED, what, 0, me.regs);
}

/* ---- the table ---- */

static void recount(void)
{
	app.map_stores = 0;
	app.map_files = 0;
	app.map_settled = 0;
	for (u32 i = 0; i < app.maps; i++) {
		app.map_files += app.map[i].ref != 0;
		if (app.map[i].flags & SF_M_STORES)
			app.map_stores += app.map[i].end - app.map[i].start;
		if (app.map[i].flags & SF_M_SETTLED)
			app.map_settled += (u32)((app.map[i].end - app.map[i].start) / PAGE);
	}
	if (me.slot == 0)
		store(&G->settled, app.map_settled);
	if (app.domain)
		sf_domain_tell();
}

/* First place for `len` bytes of refs that no mapping uses: equal in all replicas. */
static u64 place_shared(u64 len)
{
	u64 at = SF_REFS;
	for (u32 i = 0; i < app.maps; i++) {
		const struct sf_map *m = &app.map[i];
		if (m->ref && at < m->ref + (m->end - m->start) && at + len > m->ref) {
			at = m->ref + (m->end - m->start);
			i = -1u; /* from the start again */
		}
	}
	return len <= SF_WINDOWS - SF_REFS && at <= SF_WINDOWS - len ? at : 0;
}

/* A second view of bytes that some view may store to: neither would see the other's stores.
 * What lies in [lo, hi) is about to be replaced, what begins at `but` is the one that asks. */
static int seen_twice(const struct sf_map *n, u64 lo, u64 hi, u64 but)
{
	for (u32 i = 0; i < app.maps; i++) {
		const struct sf_map *m = &app.map[i];
		if (m->dev != n->dev || m->ino != n->ino || !((m->flags | n->flags) & SF_M_STORES) || m->start == but ||
		    (m->start >= lo && m->end <= hi))
			continue;
		if (m->offset < n->offset + (n->end - n->start) && n->offset < m->offset + (m->end - m->start))
			return 1;
	}
	return 0;
}

/* ... and one of the two is code: who writes it through one view and runs it in the other. */
static int seen_as_code(const struct sf_map *n, u64 lo, u64 hi, u64 prot)
{
	u32 code = prot & PROT_EXEC;
	for (u32 i = 0; i < app.maps; i++) {
		const struct sf_map *m = &app.map[i];
		if (m->dev == n->dev && m->ino == n->ino && !(m->start >= lo && m->end <= hi))
			code |= m->flags >> SF_M_PROT & PROT_EXEC;
	}
	return code != 0;
}

static void let_go(s32 hold)
{
	if (me.slot != 0 || hold < 0)
		return;
	for (u32 i = 0; i < app.maps; i++)
		if (app.map[i].hold == hold)
			return;
	sf_rpc(SF_RPC_DROP, (u64)hold, 0, 0, 0, 0);
}

static void unmap_own(const struct sf_map *m, u64 from, u64 to)
{
	if (!m->ref)
		return;
	u64 at = m->ref + (from - m->start);
	sys2(NR_munmap, at, to - from);
	if (me.slot == 0)
		sys2(NR_munmap, window_shared(at), to - from);
}

static void begin_at(struct sf_map *m, u64 start)
{
	u64 by = start - m->start;
	m->start += by;
	m->offset += by;
	m->ref += m->ref ? by : 0;
}

/* Cuts mappings so that none reaches across `at`. */
static void cut_shared(u64 at)
{
	for (u32 i = 0, n = app.maps; i < n; i++) {
		struct sf_map *m = &app.map[i];
		if (m->start >= at || m->end <= at)
			continue;
		ASSERT(app.maps < SF_MAPS_MAX); /* sf_shared_allows */
		struct sf_map *tail = &app.map[app.maps++];
		*tail = *m;
		begin_at(tail, at);
		m->end = at;
	}
}

/* [lo, hi) of the program's memory is no longer what it was. */
static void forget_shared(u64 lo, u64 hi)
{
	cut_shared(lo);
	cut_shared(hi);
	for (u32 i = 0; i < app.maps;) {
		struct sf_map m = app.map[i];
		if (m.start < lo || m.end > hi) {
			i++;
			continue;
		}
		unmap_own(&m, m.start, m.end);
		app.map[i] = app.map[--app.maps];
		memset(&app.map[app.maps], 0, sizeof m); /* hashed with the rest */
		let_go(m.hold);
	}
	recount();
}

/* ---- which pages are dirty ---- */

/* Runs of at most `pages` pages in [*from, to) that this replica owns. Moves *from behind what
 * it looked at. */
static u32 owned(s64 pagemap, u64 *from, u64 to, struct page_region *run, u32 room, u32 pages)
{
	static int no_scan;
	u64 at = *from;
	if (pagemap < 0) { /* few pages, no descriptor left, or no procfs: look at every page */
		run[0] = (struct page_region){ at, to, 0 };
		*from = to;
		return 1;
	}
	if (!no_scan) {
		struct pm_scan_arg a = { .size = sizeof a,
					 .start = at,
					 .end = to,
					 .vec = (u64)run,
					 .vec_len = room,
					 .category_inverted = PAGE_IS_FILE | PAGE_IS_PFNZERO,
					 .category_mask = PAGE_IS_FILE | PAGE_IS_PFNZERO,
					 .category_anyof_mask = PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
					 .max_pages = pages };
		s64 n = sys3(NR_ioctl, pagemap, PAGEMAP_SCAN, &a);
		if (n >= 0) {
			*from = a.walk_end;
			return (u32)n;
		}
		no_scan = 1; /* before Linux 6.7 */
	}
	static u64 entry[512];
	u64 want = (to - at) / PAGE < 512 ? (to - at) / PAGE : 512;
	s64 got = sys4(NR_pread64, pagemap, entry, want * 8, at / PAGE * 8);
	u32 n = 0;
	for (s64 i = 0; i < got / 8 && n < room; i++, at += PAGE) {
		/* bit 63 present, 62 swapped, 61 page of a file */
		if (!(entry[i] >> 62) || (entry[i] >> 61 & 1))
			continue;
		if (n && run[n - 1].end == at)
			run[n - 1].end = at + PAGE;
		else
			run[n++] = (struct page_region){ at, at + PAGE, 0 };
	}
	*from = got > 0 ? at : to;
	return n;
}

static void digest_shared(const struct sf_map *m, u64 at, const void *bytes, struct sf_hash *h)
{
	u64 offset = m->offset + (at - m->start);
	*h = (struct sf_hash){ offset ^ m->ino, sf_mix(offset, m->dev) };
	sf_hash_bytes(h, bytes, PAGE);
}

/* Does the page differ from the file? Then also its digest. Either may not be there: behind
 * the end of the file, or made unreadable. */
static int differs(const struct sf_map *m, u64 page, struct sf_hash *h)
{
	volatile int d = 0;
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		const u64 *x = (const u64 *)page, *y = (const u64 *)(m->ref + (page - m->start));
		u32 i = 0;
		while (i < PAGE / 8 && x[i] == y[i])
			i++;
		if (i < PAGE / 8) {
			digest_shared(m, page, x, h);
			d = 1;
		}
	}
	me.guard = NULL;
	return d;
}

static void drop_shared(u64 from, u64 to)
{
	if (from < to && sys3(NR_madvise, from, to - from, MADV_DONTNEED) < 0)
		sys3(NR_madvise, from, to - from, MADV_DONTNEED_LOCKED);
}

/* The first dirty pages of a part, from place `at` on; their joint digest is added to `sum`. */
struct scan {
	u32 map;
	u64 from;
};
static u32 collect(const struct part *p, struct scan *at, struct sf_hash *sum)
{
	static struct page_region run[64];
	s64 pagemap = -EAGAIN;
	u32 n = 0;
	for (; at->map < app.maps && n < BATCH; at->map++, at->from = 0) {
		const struct sf_map *m = &app.map[at->map];
		if (!(m->flags & SF_M_STORES) || (p->ino && (p->ino != m->ino || p->dev != m->dev)))
			continue;
		int keep = p->glance || me.role == SF_RERUN || (m->flags & SF_M_SETTLED);
		u64 from = p->lo > m->start ? p->lo : m->start, to = p->hi < m->end ? p->hi : m->end;
		if (at->from > from)
			from = at->from;
		if (pagemap == -EAGAIN && to > from + FEW * PAGE)
			pagemap = sys3(NR_open, "/proc/self/pagemap", 02000000 /* O_CLOEXEC */, 0);
		while (from < to && n < BATCH) {
			u32 runs = owned(to > from + FEW * PAGE ? pagemap : -1, &from, to, run, sizeof run / sizeof *run, BATCH - n);
			for (u32 r = 0; r < runs && n < BATCH; r++) {
				u64 same = run[r].start, page = same;
				for (; page < run[r].end && n < BATCH; page += PAGE) {
					struct dirty *d = &dirty[n];
					if (!differs(m, page, &d->hash))
						continue;
					if (!keep)
						drop_shared(same, page); /* stores that changed nothing */
					same = page + PAGE;
					d->page = page;
					d->map = at->map;
					n++;
					sum->a = sf_mix(sum->a, d->hash.a);
					sum->b = sf_mix(sum->b, d->hash.b);
				}
				if (!keep)
					drop_shared(same, page);
				if (n == BATCH)
					from = page;
			}
		}
		if (n == BATCH && from < to) {
			at->from = from;
			break;
		}
	}
	if (pagemap >= 0)
		sys1(NR_close, pagemap);
	return n;
}

/* For the epoch: what the views hold beyond their files. */
void sf_shared_hash(struct sf_hash *sum)
{
	struct scan at = { 0, 0 };
	struct part glance = everything;
	glance.glance = 1;
	while (app.map_stores && at.map < app.maps)
		collect(&glance, &at, sum);
}

/* The end of the leading part of [from, to) that is all view (*view set) or all not. */
u64 sf_shared_part(u64 from, u64 to, int *view)
{
	*view = 0;
	for (u32 i = 0; i < app.maps; i++) {
		const struct sf_map *m = &app.map[i];
		if (m->start <= from && from < m->end) {
			*view = 1;
			return m->end < to ? m->end : to;
		}
		if (m->start > from && m->start < to)
			to = m->start;
	}
	return to;
}

/* ---- write-back ---- */

/* A re-run has to see what the file held at its snapshot: the leader keeps each page's bytes
 * before it changes them for the first time. */
struct undo {
	u64 dev, ino, offset, spare;
	u8 bytes[PAGE];
};
#define UNDO ((struct undo *)(SF_SHARED + SF_OFF_UNDO))
#define UNDO_MAX (SF_UNDO_BYTES / sizeof(struct undo))

static void snapshot_ends(void)
{
	if (!G->snapshot_broken)
		G->snapshot_broken = 1;
}

static void keep_old(const struct sf_map *m, u64 page)
{
	static u64 since, kept[1024];
	u64 at = window_shared(m->ref) + (page - m->start), *slot = &kept[at / PAGE % 1024];
	if (!(G->options & SF_O_RETAIN) || G->snapshot_broken)
		return;
	if (since != G->snapshot_seq) {
		since = G->snapshot_seq;
		memset(kept, 0, sizeof kept);
	}
	if (*slot == at)
		return;
	if (G->undo_n >= UNDO_MAX) {
		snapshot_ends();
		return;
	}
	struct undo *u = &UNDO[G->undo_n];
	u->dev = m->dev;
	u->ino = m->ino;
	u->offset = m->offset + (page - m->start);
	memcpy(u->bytes, (void *)at, PAGE);
	store(&G->undo_n, G->undo_n + 1);
	*slot = at;
}

/* Re-run: pages whatever their protection; both kinds of mapping are private to this process. */
static void put_page(s64 mem, s64 pagemap, u64 page, const void *bytes)
{
	struct page_region run;
	u64 from = page;
	if (pagemap < 0 || !owned(pagemap, &from, page + PAGE, &run, 1, 1))
		sys4(NR_pwrite64, mem, bytes, PAGE, page);
}

/* Re-run: what it owns already holds stores from before its snapshot, and of several records
 * of one page the first is the oldest. */
static void undo(u32 from, u32 to)
{
	if (from == to || !G->undo_n)
		return;
	s64 mem = sys3(NR_open, "/proc/self/mem", 02000002 /* O_RDWR|O_CLOEXEC */, 0);
	s64 pagemap = sys3(NR_open, "/proc/self/pagemap", 02000000, 0);
	for (u32 i = 0; i < G->undo_n && i < UNDO_MAX && pagemap >= 0; i++) {
		const struct undo *u = &UNDO[i];
		for (u32 k = from; k < to; k++) {
			const struct sf_map *m = &app.map[k];
			if (m->dev != u->dev || m->ino != u->ino || u->offset - m->offset >= m->end - m->start)
				continue;
			put_page(mem, pagemap, m->start + (u->offset - m->offset), u->bytes);
			if (m->ref)
				put_page(mem, pagemap, m->ref + (u->offset - m->offset), u->bytes);
		}
	}
	sys1(NR_close, mem);
	sys1(NR_close, pagemap);
}

/* The start of a re-run. */
void sf_shared_undo(void)
{
	undo(0, app.maps);
}

/* Re-run: write-back changes what it takes for the file. */
static void write_refs(u32 n)
{
	s64 mem = sys3(NR_open, "/proc/self/mem", 02000002, 0);
	for (u32 i = 0; i < n; i++) {
		const struct sf_map *m = &app.map[dirty[i].map];
		put_page(mem, -1, m->ref + (dirty[i].page - m->start), (void *)dirty[i].page);
	}
	sys1(NR_close, mem);
}

enum written { WRITTEN, CHANGED, NO_ROOM };

/* The times of a file in a tmpfs change when a page is first stored to behind a mapping: as if the window were new. */
static void changes_times(u64 at)
{
	sys3(NR_madvise, at, PAGE, MADV_DONTNEED);
	__atomic_fetch_or((u64 *)at, 0, __ATOMIC_RELAXED); /* a store, and nothing else */
}

/* 0: the file has no room. */
static __attribute__((noinline)) int stored(const struct sf_map *m, u64 page, u64 at, const u64 *copy)
{
	volatile int room = 0;
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		if (m->flags & SF_M_MEMORY)
			changes_times(at);
		keep_old(m, page);
		sf_settle_merge((u64 *)at, copy, (const u64 *)(m->flags & SF_M_SETTLED ? m->ref + (page - m->start) : at));
		room = 1;
	}
	me.guard = NULL;
	return room;
}

/* Leader, after the vote. */
static enum written write_dirty(u32 n)
{
	static u64 copy[PAGE / 8]; /* what was agreed, out of the reach of stray stores */
	enum written how = WRITTEN;
	u64 open = 0, len = 0;
	for (u32 i = 0; i < n && how == WRITTEN; i++) {
		const struct sf_map *m = &app.map[dirty[i].map];
		struct sf_hash h;
		if (sf_user_bytes(copy, dirty[i].page, PAGE) < 0)
			continue; /* others made the file shorter: the page is gone, and its place */
		digest_shared(m, dirty[i].page, copy, &h);
		if (h.a != dirty[i].hash.a || h.b != dirty[i].hash.b) {
			how = CHANGED;
			continue;
		}
		u64 at = window_shared(m->ref) + (dirty[i].page - m->start);
		if (at - open >= len) {
			u32 last = i;
			while (last + 1 < n && dirty[last + 1].map == dirty[i].map)
				last++;
			sys3(NR_mprotect, open, len, PROT_READ);
			open = at;
			len = dirty[last].page + PAGE - dirty[i].page;
			sys3(NR_mprotect, open, len, PROT_READ | PROT_WRITE);
		}
		if (!stored(m, dirty[i].page, at, copy))
			how = NO_ROOM;
	}
	sys3(NR_mprotect, open, len, PROT_READ);
	return how;
}

/* A write-back in progress: what of `part` is in this event, and from where the next one looks. */
struct writing {
	const struct part *part;
	struct scan at, next;
	struct sf_hash sum;
	u32 n;
};

static enum sf_claim claim_shared(struct sf_event *e, struct sf_regs *r, void *arg)
{
	struct writing *w = arg;
	(void)r;
	SF_FLIP_POINT(me.next, flip_event, SF_T_EVENT);
	*e = (struct sf_event){ .seq = me.next, .kind = SF_K_WRITEBACK, .lockstep = 1 };
	/* A follower that a repair has interrupted while the leader wrote has to claim what it
	 * claimed before: the file has it by now. */
	if (likely(!w->n || RESULT(e->seq - me.base)->seq != e->seq)) {
		w->next = w->at;
		w->sum = (struct sf_hash){ 0, 0 };
		w->n = collect(w->part, &w->next, &w->sum);
		if (!w->n)
			return SF_NOTHING;
	}
	e->bytes = (struct sf_hash){ sf_mix(w->sum.a, w->sum.b), sf_mix(w->sum.b, ~w->sum.a) };
	e->args[0] = w->n;
	e->args[1] = dirty[0].page;
	return SF_CLAIMED;
}

static void agreed_shared(struct sf_event *e, struct sf_regs *r, void *arg)
{
	(void)r, (void)arg;
	SF_FLIP_POINT(e->seq, flip_voted, SF_T_VOTED);
}

static const struct sf_result *act_shared(struct sf_event *e, void *arg)
{
	struct writing *w = arg;
	enum written how = write_dirty(w->n);
	if (how == CHANGED) {
		sf_raise(SF_A_DIVERGED, e->seq); /* with its own claim: it will lose */
		return NULL;
	}
	if (how == NO_ROOM)
		sf_die(SIGBUS);
	struct sf_result *res = sf_result_begin(e, 0);
	sf_result_bytes(res, w->part, sizeof *w->part);
	res->flags |= SF_R_WROTE;
	for (u32 i = 0; i < w->n; i++)
		if (sf_settle_differs(&app.map[dirty[i].map], dirty[i].page))
			res->flags |= SF_R_SETTLE;
	sf_result_end(res);
	return res;
}

static int done_shared(struct sf_event *e, const struct sf_result *res, void *arg)
{
	struct writing *w = arg;
	(void)e, (void)res;
	if (me.role == SF_RERUN)
		write_refs(w->n);
	for (u32 i = 0; i < w->n; i++)
		if (app.map[dirty[i].map].flags & SF_M_SETTLED)
			sf_settle_written(&app.map[dirty[i].map], dirty[i].page);
	for (u32 i = 0; i < w->n && me.role != SF_RERUN;) {
		if (app.map[dirty[i].map].flags & SF_M_SETTLED) {
			i++;
			continue;
		}
		u64 from = dirty[i].page, to = from;
		const u32 map = dirty[i].map;
		for (; i < w->n && dirty[i].map == map && dirty[i].page == to; i++)
			to += PAGE;
		drop_shared(from, to);
	}
	return 0;
}

static const struct sf_step writes = { claim_shared, agreed_shared, act_shared, NULL, done_shared, 1 };

/* When turns end is a matter of time: no event of the program's, which counts its own. */
static enum sf_claim claim_turn(struct sf_event *e, struct sf_regs *r, void *arg)
{
	const enum sf_claim what = claim_shared(e, r, arg);
	if (what == SF_CLAIMED)
		me.own_event = 1;
	return what;
}

static const struct sf_step writes_at_turn = { claim_turn, agreed_shared, act_shared, NULL, done_shared, 0 };

/* Before another process of the domain has its turn. */
void sf_shared_hand_over(struct sf_regs *r)
{
	struct writing w = { .part = &everything };
	struct sf_event e;
	while (app.map_stores && me.holds && sf_event(&e, r, &writes_at_turn, &w) != SF_UNDONE && w.n == BATCH) {
		w.at = w.next;
		w.n = 0;
	}
}

/* 1: this replica has become another. */
static int write_back(const struct sf_regs *r, const struct part *p)
{
	struct writing w = { .part = p };
	struct sf_event e;
	for (;;) {
		s32 flags = sf_event(&e, (struct sf_regs *)r, &writes, &w);
		if (flags == SF_UNDONE)
			return me.restarted != 0;
		if (unlikely(flags & SF_R_SETTLE) && sf_settle_there((struct sf_regs *)r))
			return 1;
		if (w.n < BATCH)
			return 0;
		w.at = w.next;
		w.n = 0;
	}
}

/* 1: this replica has become another. */
int sf_shared_all_written(const struct sf_regs *r)
{
	return app.map_stores && write_back(r, &everything);
}

/* An agreed default action ends the program; its stores stay. */
NORETURN void sf_die_agreed(struct sf_regs *r, u32 s)
{
	me.doing = SF_D_ENTROPY;
	me.doing_desc = SF_DESC_DEATH | s << 8;
	if (app.map_stores && write_back(r, &everything))
		sf_again(r);
	sf_domain_leave();
	if (me.slot == 0)
		sf_die((int)s);
	for (;;) /* the launcher ends who is left */
		sys0(NR_pause);
}

/* The same for a fault, before its event. 1: start again. */
int sf_shared_fault(const struct sf_regs *r)
{
	return app.map_stores && write_back(r, &everything);
}

/* Leader: a wait without a limit for a word that another program of the tree stores to in its own view of the file, where nobody
 * here sees it. Only a wake by a thread of this process would end it, and that is not what such a word is for. Processes that
 * take turns with the file see each other's. */
int sf_shared_waits_in_vain(const u64 a[6])
{
	const u32 op = (u32)a[1] & FUTEX_CMD;
	u32 v;
	if ((a[1] & FUTEX_PRIVATE) || a[3] || (op != FUTEX_WAIT && op != FUTEX_WAIT_BITSET && op != FUTEX_LOCK_PI && op != FUTEX_LOCK_PI2))
		return 0;
	if (sf_user_bytes(&v, a[0], sizeof v) < 0 || ((op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET) && v != (u32)a[2]))
		return 0; /* it does not wait */
	for (u32 i = 0; i < app.maps; i++) {
		const struct sf_map *m = &app.map[i];
		if (a[0] < m->start || m->end <= a[0] || !m->ref || (m->flags & (SF_M_SEGMENT | SF_M_ZERO | SF_M_COMMON)))
			continue;
		const s64 others = sf_rpc(SF_RPC_OTHERS, m->dev, m->ino, 0, 0, 0);
		return others == 1 || (others == SF_OTHERS_IN_TURNS && !app.domain);
	}
	return 0;
}

/* Calls on the bytes of files: which arguments are descriptors, a bit each. */
static u32 descriptors(u32 nr)
{
	switch (nr) {
	case NR_read:
	case NR_write:
	case NR_lseek:
	case NR_ioctl:
	case NR_pread64:
	case NR_pwrite64:
	case NR_readv:
	case NR_writev:
	case NR_fcntl:
	case NR_fsync:
	case NR_fdatasync:
	case NR_ftruncate:
	case NR_sync_file_range:
	case NR_fallocate:
	case NR_preadv:
	case NR_pwritev:
	case NR_syncfs:
	case NR_preadv2:
	case NR_pwritev2: return 1u << 0;
	case NR_sendfile: return 1u << 0 | 1u << 1;
	case NR_splice:
	case NR_copy_file_range: return 1u << 0 | 1u << 2;
	case NR_mmap: return 1u << 4;
	}
	return 0;
}

static s64 stat_of(u64 fd, struct stat *st)
{
	char path[40];
	if (likely(me.slot == 0 || !me.tables_apart))
		return sys2(NR_fstat, (u32)fd, st);
	sf_leaders_file(fd, path);
	return sys2(NR_stat, path, st);
}

/* Before call `nr`: write back what it, or whoever sees its effect, has to find. 1: start again. */
/* A re-run would see what a call is about to write to a file that is mapped. */
static void writes_to_a_view(u64 fd)
{
	struct stat st;
	if (!(G->options & SF_O_RETAIN) || G->snapshot_broken || me.slot != 0 || sys2(NR_fstat, (u32)fd, &st) != 0)
		return;
	for (u32 i = 0; i < app.maps; i++)
		if (app.map[i].ino == st.ino && app.map[i].dev == st.dev)
			snapshot_ends();
}

enum before { ON, NOTHING, WROTE }; /* go on looking; nothing is to be written back; it has been, as an event of its own */

static enum before write_part(const struct sf_regs *r, struct part p)
{
	return write_back(r, &p) ? WROTE : NOTHING;
}

/* A re-run does as the log says: descriptors may name other files by now. */
static enum before as_logged(const struct sf_regs *r)
{
	while (me.role == SF_RERUN && me.next < G->rerun_until) {
		const struct sf_result *then = RESULT(me.next - me.base);
		u64 next = me.next;
		struct part p;
		if (then->seq != next || !(then->flags & SF_R_WROTE))
			return NOTHING;
		memcpy(&p, PAYLOAD + then->out_off, sizeof p);
		if (write_back(r, &p))
			return WROTE;
		if (me.next == next)
			return NOTHING; /* nothing is dirty here: the claim about the call will differ */
	}
	return ON;
}

/* Calls that change memory, or end the program. */
static enum before before_change(const struct sf_regs *r, u32 nr, const u64 a[6])
{
	const struct part given = { a[0], sf_page_up(a[0] + a[1]), 0, 0, 0 };
	switch (nr) {
	case NR_exit:
	case NR_exit_group:
	case NR_execve:
	case NR_execveat: return write_part(r, everything);
	case NR_mmap:
		if ((a[3] & MAP_FIXED) && write_part(r, given) == WROTE)
			return WROTE;
		return a[3] & MAP_ANONYMOUS ? NOTHING : ON;
	case NR_mremap:
		if (write_part(r, given) == WROTE)
			return WROTE;
		if (!(a[3] & MREMAP_FIXED))
			return NOTHING;
		return write_part(r, (struct part){ a[4], sf_page_up(a[4] + a[2]), 0, 0, 0 });
	case NR_mprotect:
	case NR_pkey_mprotect: return a[2] & PROT_READ ? NOTHING : write_part(r, given);
	case NR_madvise: return a[2] != MADV_DONTNEED && a[2] != MADV_DONTNEED_LOCKED ? NOTHING : write_part(r, given);
	case NR_munmap:
	case NR_msync: return write_part(r, given);
	}
	return ON;
}

/* A file that the program has made in a tmpfs, or a memory object, and of which it has a view in [from, to). */
static int is_own_view(const struct stat *st, u64 from, u64 to)
{
	for (u32 i = 0; i < app.maps; i++) {
		const struct sf_map *m = &app.map[i];
		if ((m->flags & SF_M_OWN) && m->ref && m->dev == st->dev && m->ino == st->ino && m->offset < to &&
		    from < m->offset + (m->end - m->start))
			return 1;
	}
	return 0;
}

/* Such a file is to be mapped shared once more: as a segment it may be. Chromium maps its memory to be written and to be read. */
static int is_mapped_again(u32 nr, const u64 a[6])
{
	const u64 kind = a[3] & MAP_TYPE;
	struct stat st;
	if (nr != NR_mmap || (a[3] & MAP_ANONYMOUS) || (a[2] & PROT_EXEC) || (kind != MAP_SHARED && kind != MAP_SHARED_VALIDATE))
		return 0;
	return sf_shared_own() && stat_of((u32)a[4], &st) == 0 && is_own_view(&st, a[5], a[5] + sf_page_up(a[1]));
}

/* ... or is handed on to another process. */
static int is_handed_on(u32 nr, const u64 a[6])
{
	static s32 fd[SF_RIGHTS_MAX];
	struct stat st;
	u64 msg;
	if ((nr != NR_sendmsg && nr != NR_sendmmsg) || !sf_shared_own())
		return 0;
	for (u32 i = 0; (msg = sf_message_sent(nr, a, i)) != 0; i++)
		for (u32 n = sf_message_rights(msg, fd, SF_RIGHTS_MAX); n--;)
			if (stat_of((u32)fd[n], &st) == 0 && is_own_view(&st, 0, ~0ull))
				return 1;
	return 0;
}

int sf_shared_before(struct sf_regs *r, const struct sf_call *c, u32 nr, const u64 a[6])
{
	const u32 fds = descriptors(nr);
	if ((c->class == SF_QUERY && !sf_domain_waits(nr, a)) || c->class == SF_DENY || c->class == SF_LOCAL)
		return 0;
	if (c->class == SF_COMMIT && (fds & 1))
		writes_to_a_view(a[0]);
	if ((is_mapped_again(nr, a) || is_handed_on(nr, a)) && sf_domain_of_own(r))
		return 1;
	if (!app.map_stores)
		return 0;
	enum before found = as_logged(r);
	if (found == ON)
		found = before_change(r, nr, a);
	if (found != ON)
		return found == WROTE;
	struct part p = everything;
	switch (c->handler) {
	case SF_H_kill:
	case SF_H_pidfd:
	case SF_H_tkill:
	case SF_H_tgkill:
	case SF_H_sigqueue: return write_back(r, &p); /* it may be the end */
	}
	struct stat st;
	for (u32 i = 0; fds >> i; i++) {
		if (!(fds >> i & 1) || stat_of(a[i], &st) < 0)
			continue;
		p.dev = st.dev;
		p.ino = st.ino;
		if (write_back(r, &p))
			return 1;
	}
	p = everything;
	/* Those reach files by their names. In a domain any copy would hide what others store next. */
	p.glance = !app.domain && nr != NR_truncate && c->handler != SF_H_open;
	if (c->class == SF_REFUSE || app.domain || (c->class == SF_COMMIT && app.map_stores <= PROMPT))
		return write_back(r, &p);
	return 0;
}

/* ---- making and changing mappings ---- */

/* Regular by their mode, and yet not plain bytes in the page cache. */
static int odd_file_system(u32 fd)
{
	static const u32 magic[] = {
		0x958458f6 /* hugetlbfs */, 0x62656572 /* sysfs: registers of devices */,
		0x9fa0 /* proc */,          0x64626720 /* debugfs */,
		0x74726163 /* tracefs */,   0xcafe4a11 /* bpf */,
	};
	s64 f[15];
	u64 x[32];
	_Static_assert(sizeof f == 120 && sizeof x == 256, "struct statfs, struct statx");
	if (sys2(NR_fstatfs, fd, f) == 0)
		for (u32 i = 0; i < sizeof magic / sizeof *magic; i++)
			if ((u32)f[0] == magic[i])
				return 1;
	memset(x, 0, sizeof x);
	sf_sys(NR_statx, fd, (u64) "", 0x1000 /* AT_EMPTY_PATH */, 0, (u64)x, 0);
	return x[1] >> 21 & 1; /* STATX_ATTR_DAX: no page cache in between */
}

static struct sf_shared_file found;
static const struct sf_shared_file *given;

/* Leader: what the mapping just made is of, once; NULL: nothing that followers have to know. */
const struct sf_shared_file *sf_shared_found(void)
{
	static struct sf_shared_file taken;
	taken = found;
	found.flags = 0;
	return taken.flags ? &taken : NULL;
}

void sf_shared_given(const struct sf_shared_file *f)
{
	given = f;
}

/* Whether the mapping just made is of memory that is nobody's file. */
static const struct sf_shared_file *present(void)
{
	return me.slot == 0 ? &found : given;
}

/* Whether it is of memory that processes of a tree share, and of which file. */
int sf_shared_is_segment(struct sf_shared_file *f)
{
	if (!present() || !(present()->flags & SF_M_SEGMENT))
		return 0;
	if (f)
		*f = *present();
	return 1;
}

int sf_shared_is_zero(void)
{
	return present() && (present()->flags & SF_M_ZERO);
}

static void enter_shared(struct sf_map *m, u64 at, u64 len, u64 fixed, u64 prot);

/* It has been mapped. What was opened for reading alone stays zeros: it has an entry for mprotect(2) to find. */
void sf_shared_zeros(const u64 a[6], u64 at)
{
	struct sf_map m = { .flags = SF_M_KNOWN, .hold = -1 };
	if (!(present()->flags & SF_M_READS))
		sf_domain_changed(NR_mmap, (const u64[6]){ a[0], a[1], a[2], a[3] | MAP_ANONYMOUS, a[4], a[5] }, (s64)at);
	else if (app.maps < SF_MAPS_MAX / 2)
		enter_shared(&m, at, sf_page_up(a[1]), 0, a[2]);
}

static s64 map_view(const u64 a[6], s64 forced)
{
	/* Pages are copied as they are stored to, no sooner: no reserve, no populating. */
	u64 flags = (a[3] & ~(u64)(MAP_TYPE | MAP_SYNC | MAP_POPULATE)) | MAP_PRIVATE | MAP_NORESERVE;
	if (forced && !(flags & MAP_FIXED))
		return sys6(NR_mmap, forced, a[1], a[2], flags | MAP_FIXED_NOREPLACE, a[4], a[5]);
	return sys6(NR_mmap, a[0], a[1], a[2], flags, a[4], a[5]);
}

static void enter_shared(struct sf_map *m, u64 at, u64 len, u64 fixed, u64 prot)
{
	m->flags |= (u32)(prot & 7) << SF_M_PROT;
	if (fixed)
		forget_shared(at, at + len);
	m->start = at;
	m->end = at + len;
	app.map[app.maps++] = *m;
	recount();
	if (m->flags & SF_M_COMMON)
		sf_domain_enter();
}

static s64 abandon(u64 ref, u64 len, s64 why)
{
	found.flags = 0;
	sys2(NR_munmap, ref, len);
	sys2(NR_munmap, window_shared(ref), len);
	return why;
}

/* Leader: the kernel shows whether a mapping may become writable. */
static int never_writable(u64 at, u64 len, u64 prot)
{
	return sys3(NR_mprotect, at, len, prot | PROT_WRITE) != 0 || (sys3(NR_mprotect, at, len, prot), 0);
}

static s64 map_segment(const u64 a[6], s64 forced, struct sf_shared_file *f)
{
	s64 r = sf_segment_map(a, forced, f);
	if (me.slot == 0 && !sf_failed(r) && !(a[2] & PROT_WRITE) && never_writable((u64)r, sf_page_up(a[1]), a[2]))
		f->flags |= SF_M_READS;
	if (sf_failed(r))
		f->flags = 0;
	else if (a[3] & MAP_FIXED)
		forget_shared((u64)r, (u64)r + sf_page_up(a[1]));
	return r;
}

/* Notes the file, whether the mapping may be stored to (a descriptor opened for reading, or a seal, shows in that), and whether
 * processes take turns with it. */
static void what_it_may_become(const struct stat *st, const u64 a[6], u64 ref, u64 len)
{
	found.dev = st->dev;
	found.ino = st->ino;
	found.hold = -1;
	found.flags = SF_M_KNOWN;
	if (sys3(NR_mprotect, window_shared(ref), len, PROT_READ | PROT_WRITE) != 0)
		return;
	if ((a[2] & (PROT_WRITE | PROT_EXEC)) == (PROT_WRITE | PROT_EXEC))
		refuse(SF_NR_SHARED_MAP); /* patches of its code would be written back */
	if (!(a[2] & PROT_EXEC))
		found.flags |= SF_M_WRITE | (a[2] & PROT_WRITE ? SF_M_STORES : 0);
	if ((found.flags & SF_M_WRITE) && !sf_alone() && !(G->options & SF_O_PAIR) &&
	    sf_rpc(SF_RPC_OTHERS, st->dev, st->ino, 0, 0, 0) == SF_OTHERS_IN_TURNS)
		found.flags |= SF_M_COMMON;
}

/* What may be stored to has a ref, the bytes as they are in the file. */
static s64 keep_as_it_is(const u64 a[6], u64 ref, u64 len)
{
	if (!(found.flags & SF_M_WRITE)) {
		sys2(NR_munmap, window_shared(ref), len);
		return 0;
	}
	sys3(NR_mprotect, window_shared(ref), len, PROT_READ);
	sys3(NR_madvise, window_shared(ref), len, MADV_DONTFORK);
	return sys6(NR_mmap, ref, a[1], PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE | MAP_NORESERVE, a[4], a[5]);
}

/* A re-run maps the file by its name, and has the oldest bytes of each page, no others. */
static void rerun_maps(const struct stat *st)
{
	if (!st->nlink)
		snapshot_ends();
	for (u32 i = 0; i < G->undo_n && i < UNDO_MAX; i++)
		if (UNDO[i].ino == st->ino && UNDO[i].dev == st->dev)
			snapshot_ends();
}

/* Data that would be code elsewhere, or the other way round; anything else that is seen twice is refused. */
static int is_second_view(const struct sf_map *m, const u64 a[6], u64 len)
{
	const u64 lo = a[3] & MAP_FIXED ? a[0] : 0, hi = a[3] & MAP_FIXED ? lo + len : 0;
	if (!seen_twice(m, lo, hi, 0))
		return 0;
	if (!seen_as_code(m, lo, hi, a[2]))
		refuse(SF_NR_TWO_VIEWS);
	return 1;
}

/* A segment, or what could become one, in one place and code in another. */
static int is_code_elsewhere(const struct sf_shared_file *f, u64 prot)
{
	if (prot & PROT_EXEC)
		return sf_domain_has(f->dev, f->ino);
	for (u32 i = 0; i < app.maps; i++)
		if (app.map[i].dev == f->dev && app.map[i].ino == f->ino && (app.map[i].flags >> SF_M_PROT & PROT_EXEC) &&
		    (prot & PROT_WRITE))
			return 1;
	return 0;
}

/* One replica alone, and processes of its tree share this file: so does this one. */
static int is_of_others_alone(struct sf_shared_file *f)
{
	if (!sf_alone() || (G->options & SF_O_PAIR) || sf_rpc(SF_RPC_OTHERS, f->dev, f->ino, 0, 0, 0) != SF_OTHERS_IN_TURNS)
		return 0;
	f->flags = SF_M_KNOWN | SF_M_SEGMENT;
	f->hold = -1;
	return 1;
}

static int opened_to_read(u64 fd)
{
	const s64 flags = sys3(NR_fcntl, (u32)fd, 3 /* F_GETFL */, 0);
	return flags >= 0 && !(flags & (3 | 010000000 /* O_PATH */));
}

static s64 abandon_zeros(void)
{
	found.flags = 0;
	return -EACCES;
}

/* Leader: what kind of file is this, and may it be written? The kernel answers by mapping it. */
static s64 map_first(const u64 a[6])
{
	u64 len = sf_page_up(a[1]);
	struct stat st;
	struct sf_map m = { .offset = a[5], .hold = -1, .end = len /* with start 0: its length */ };
	if (sys2(NR_fstat, (u32)a[4], &st) < 0 || !len || a[1] >> 47)
		return SF_SHARED_PLAIN; /* the kernel says what is wrong */
	if ((st.mode & S_IFMT) == S_IFCHR && st.rdev == (1 << 8 | 5)) { /* /dev/zero: anonymous memory */
		found.flags = SF_M_ZERO | (opened_to_read(a[4]) ? SF_M_READS : 0);
		return (found.flags & SF_M_READS) && (a[2] & PROT_WRITE) ? abandon_zeros() : SF_SHARED_PLAIN;
	}
	if ((st.mode & S_IFMT) == S_IFREG) {
		found.dev = st.dev;
		found.ino = st.ino;
		found.size = (u64)st.size;
		if (is_code_elsewhere(&found, a[2]))
			return -EACCES;
		if (!(a[2] & PROT_EXEC) && (sf_segment_asks(a, &found, &m.flags) || is_of_others_alone(&found)))
			return map_segment(a, 0, &found);
	}
	u64 ref = place_shared(len);
	/* Room for this one and for what a hole in two mappings leaves (mremap). */
	if (!ref || app.maps + 4 > SF_MAPS_MAX) {
		if (a[2] & PROT_WRITE)
			refuse(SF_NR_SHARED_MAP);
		return SF_SHARED_PLAIN;
	}
	/* MAP_FIXED: the kernel takes MAP_FIXED_NOREPLACE for an unknown flag of MAP_SHARED_VALIDATE. */
	s64 r = sys6(NR_mmap, window_shared(ref), a[1], a[2],
		     (a[3] & ~(u64)(MAP_FIXED_NOREPLACE | MAP_POPULATE | MAP_LOCKED | MAP_32BIT)) | MAP_FIXED | MAP_NORESERVE, a[4], a[5]);
	if (sf_failed(r))
		return r;
	if ((st.mode & S_IFMT) != S_IFREG || (a[3] & MAP_SYNC) || odd_file_system((u32)a[4]))
		refuse(SF_NR_SHARED_MAP);
	m.dev = st.dev;
	m.ino = st.ino;
	m.flags |= sf_is_tmpfs((u32)a[4]) ? SF_M_MEMORY : 0;
	what_it_may_become(&st, a, ref, len);
	m.flags = found.flags |= m.flags | (found.flags & SF_M_COMMON ? 0 : sf_settle_wanted(found.flags, len));
	if (!(m.flags & SF_M_WRITE) && app.maps >= SF_MAPS_MAX / 2) {
		found.flags = 0; /* not worth a place: it can only be read */
		sys2(NR_munmap, window_shared(ref), len);
		return SF_SHARED_PLAIN;
	}
	if (is_second_view(&m, a, len))
		return abandon(ref, len, -EACCES); /* as a system that forbids it: such programs have another way */
	if (found.flags & SF_M_WRITE)
		m.ref = ref;
	r = keep_as_it_is(a, ref, len);
	if (sf_failed(r))
		return abandon(ref, len, r);
	r = map_view(a, 0);
	if (sf_failed(r))
		return abandon(ref, len, r);
	rerun_maps(&st);
	if (m.ref)
		found.hold = m.hold = (s32)sf_rpc(SF_RPC_HOLD, (u32)a[4], st.dev, st.ino, 0, 0);
	enter_shared(&m, (u64)r, len, a[3] & MAP_FIXED, a[2]);
	return r;
}

s64 sf_shared_mmap(const u64 a[6], s64 forced)
{
	found.flags = 0;
	if (me.slot == 0)
		return map_first(a);
	if (!given || (given->flags & SF_M_ZERO))
		return SF_SHARED_PLAIN;
	if (given->flags & SF_M_SEGMENT) {
		struct sf_shared_file file = *given;
		return map_segment(a, forced, &file);
	}
	u64 len = sf_page_up(a[1]);
	struct stat st;
	if (me.role == SF_RERUN && (sys2(NR_fstat, (u32)a[4], &st) < 0 || st.dev != given->dev || st.ino != given->ino))
		return -ESTALE; /* the name means another file by now */
	struct sf_map m = { .offset = a[5], .dev = given->dev, .ino = given->ino, .hold = given->hold, .flags = given->flags };
	if (m.flags & SF_M_WRITE) {
		m.ref = place_shared(len);
		s64 r = sys6(NR_mmap, m.ref, a[1], PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE | MAP_NORESERVE, a[4], a[5]);
		if (sf_failed(r))
			return r;
	}
	s64 r = map_view(a, forced);
	if (!sf_failed(r))
		enter_shared(&m, (u64)r, len, a[3] & MAP_FIXED, a[2]);
	if (!sf_failed(r) && me.role == SF_RERUN)
		undo(app.maps - 1, app.maps);
	return r;
}

static int overlaps(const struct sf_map *m, u64 lo, u64 hi)
{
	return m->start < hi && m->end > lo;
}

/* Leader, before it makes a call that changes the program's memory: 0, or the call's result. */
s64 sf_shared_allows(u32 nr, const u64 a[6])
{
	u64 lo = a[0], hi = sf_page_up(a[0] + a[1]);
	/* munmap, mprotect and the like split a mapping at both ends, mremap at four places. */
	u32 pieces = nr == NR_mremap ? 4 : 2, hit = 0;
	for (u32 i = 0; i < app.maps; i++) {
		struct sf_map m = app.map[i];
		if (!overlaps(&m, lo, hi))
			continue;
		hit = 1;
		switch (nr) {
		case NR_mprotect:
		case NR_pkey_mprotect:
			if (!(a[2] & PROT_WRITE) || (m.flags & SF_M_STORES))
				break;
			if (!(m.flags & SF_M_WRITE))
				return -EACCES;
			m.flags |= SF_M_STORES;
			if (seen_twice(&m, 0, 0, m.start))
				refuse(SF_NR_TWO_VIEWS);
			break;
		case NR_madvise:
			snapshot_ends(); /* a re-run has copies that it must not drop */
			if (a[2] == MADV_REMOVE)
				return -EOPNOTSUPP; /* as a file system that cannot make holes */
			break;
		case NR_mremap:
			snapshot_ends();
			if (!a[1] || (a[3] & ~(u64)(MREMAP_MAYMOVE | MREMAP_FIXED)))
				return -EINVAL;
			if (hi > m.end || sf_page_up(a[2]) <= hi - lo || !m.ref)
				break;
			if (hi < m.end) /* a part that grows shows what is behind it once more */
				refuse(SF_NR_TWO_VIEWS);
			m.end += sf_page_up(a[2]) - (hi - lo);
			if (seen_twice(&m, 0, 0, m.start))
				refuse(SF_NR_TWO_VIEWS);
			if (!place_shared(m.end - m.start))
				refuse(SF_NR_SHARED_MAP);
			break;
		}
	}
	if (nr == NR_mremap && (a[3] & MREMAP_FIXED))
		for (u32 i = 0; i < app.maps; i++)
			hit |= overlaps(&app.map[i], a[4], sf_page_up(a[4] + a[2]));
	if (hit && nr != NR_madvise && nr != NR_msync && app.maps + pieces > SF_MAPS_MAX)
		refuse(SF_NR_SHARED_MAP);
	return 0;
}

/* A mapping has become longer: so do its ref and its window, elsewhere. */
static void lengthen(struct sf_map *m, u64 by)
{
	u64 len = m->end - m->start, to = place_shared(len + by);
	if (m->ref) {
		sf_sys(NR_mremap, m->ref, len, len + by, MREMAP_MAYMOVE | MREMAP_FIXED, to, 0);
		if (me.slot == 0)
			sf_sys(NR_mremap, window_shared(m->ref), len, len + by, MREMAP_MAYMOVE | MREMAP_FIXED, window_shared(to), 0);
		m->ref = to;
	}
	m->end += by;
}

/* Every replica, after such a call succeeded with `ret`. Returns its result. */
/* mprotect(2): what may have been stored to from now on. */
static void now_protected(u64 lo, u64 hi, u64 prot)
{
	cut_shared(lo);
	cut_shared(hi);
	for (u32 i = 0; i < app.maps; i++) {
		struct sf_map *m = &app.map[i];
		if (!overlaps(m, lo, hi))
			continue;
		m->flags = (m->flags & ~(7u << SF_M_PROT)) | (u32)(prot & 7) << SF_M_PROT;
		if ((prot & PROT_WRITE) && m->ref)
			m->flags |= SF_M_STORES;
	}
	recount();
}

/* madvise(2), MADV_DONTNEED: copies are dropped. */
static void now_dropped(u64 lo, u64 hi)
{
	for (u32 i = 0; i < app.maps; i++) {
		struct sf_map *m = &app.map[i];
		if (!(m->flags & SF_M_SETTLED) || !overlaps(m, lo, hi))
			continue;
		/* What is left of it is written back as that of any other view. */
		if (lo <= m->start && m->end <= hi) {
			m->flags |= SF_M_FRESH;
		} else {
			m->flags &= ~SF_M_SETTLED;
			drop_shared(m->ref, m->ref + (m->end - m->start));
		}
	}
	recount();
}

/* Every replica: from here on views follow their files by themselves, in turns. What is stored and not written back stays. */
void sf_shared_unsettle(void)
{
	for (u32 i = 0; i < app.maps; i++) {
		struct sf_map *m = &app.map[i];
		if (!(m->flags & SF_M_SETTLED))
			continue;
		for (u64 page = m->start; page < m->end; page += PAGE) {
			struct sf_hash h;
			if ((m->flags & SF_M_FRESH) || !differs(m, page, &h))
				drop_shared(page, page + PAGE);
		}
		m->flags &= ~(SF_M_SETTLED | SF_M_FRESH);
		drop_shared(m->ref, m->ref + (m->end - m->start));
	}
	recount();
}

/* mremap(2): shorter, longer, elsewhere. */
static void now_elsewhere(const u64 a[6], s64 ret)
{
	u64 lo = a[0], hi = sf_page_up(a[0] + a[1]);
	const u64 new = sf_page_up(a[2]);
	if (new < hi - lo) {
		forget_shared(lo + new, hi);
		hi = lo + new;
	}
	if (a[3] & MREMAP_FIXED)
		forget_shared((u64)ret, (u64)ret + new);
	cut_shared(lo);
	cut_shared(hi);
	for (u32 i = 0; i < app.maps; i++) {
		struct sf_map *m = &app.map[i];
		u32 settled = 0; /* and longer now */
		if (m->start < lo || m->end > hi)
			continue;
		if (m->end == hi && new > hi - lo) {
			lengthen(m, new - (hi - lo));
			settled = m->flags & SF_M_SETTLED;
		}
		m->end += (u64)ret - lo;
		m->start += (u64)ret - lo;
		if (settled && sf_settle_wanted(m->flags, m->end - m->start)) {
			m->flags |= SF_M_FRESH;
		} else if (settled) {
			m->flags &= ~SF_M_SETTLED;
			drop_shared(m->ref, m->ref + (m->end - m->start));
			drop_shared(m->start, m->end);
		}
	}
	recount();
}

/* msync(2): what write-back left in the page cache goes to the disk by way of the windows. */
static s64 now_synced(u64 lo, u64 hi, u64 flags, s64 ret)
{
	for (u32 i = 0; me.slot == 0 && i < app.maps && ret == 0; i++) {
		const struct sf_map *m = &app.map[i];
		if (!m->ref || !overlaps(m, lo, hi))
			continue;
		u64 from = lo > m->start ? lo : m->start, to = hi < m->end ? hi : m->end;
		ret = sys3(NR_msync, window_shared(m->ref) + (from - m->start), to - from, flags);
	}
	return ret;
}

s64 sf_shared_changed(u32 nr, const u64 a[6], s64 ret)
{
	const u64 lo = a[0], hi = sf_page_up(a[0] + a[1]);
	switch (nr) {
	case NR_mmap:
		if (a[3] & MAP_FIXED)
			forget_shared(lo, hi);
		break;
	case NR_munmap: forget_shared(lo, hi); break;
	case NR_mprotect:
	case NR_pkey_mprotect: now_protected(lo, hi, a[2]); break;
	case NR_madvise:
		if (a[2] == MADV_DONTNEED || a[2] == MADV_DONTNEED_LOCKED)
			now_dropped(lo, hi);
		break;
	case NR_mremap: now_elsewhere(a, ret); break;
	case NR_msync: return now_synced(lo, hi, a[2], ret);
	}
	return ret;
}

/* ---- files that are mapped anew ---- */

static void (*in_own_table)(void);
static u32 done_there;

struct clone_args {
	u64 flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

NORETURN static void own_table(void)
{
	in_own_table();
	done_there = 1;
	for (;;)
		sys1(NR_exit, 0);
}

/* Runs `what` on this process's memory with a copy of its descriptor table. To close a file in
 * the table that the replicas share would take the program's record locks on it away
 * (fcntl_locking(2)). Negative: it did not run. */
s64 sf_with_own_table(void (*what)(void))
{
	in_own_table = what;
	done_there = 0;
	/* The child begins where sf_raw returns to: on a stack whose top says where that is. */
	u64 *top = (u64 *)(sf_alt_stack + 65536) - 2;
	*top = (u64)own_table;
	struct clone_args ca = { .flags = 0x100 | 0x4000 /* CLONE_VM|CLONE_VFORK */,
				 .stack = (u64)sf_alt_stack,
				 .stack_size = (u64)top - (u64)sf_alt_stack };
	u64 call[7] = { NR_clone3, (u64)&ca, sizeof ca, 0, 0, 0, 0 };
	s64 pid = sf_raw(call);
	if (pid < 0)
		return pid;
	while (sys4(NR_wait4, pid, 0, 0x80000000u /* __WCLONE: it ends without a signal */, 0) == -EINTR)
		;
	return done_there ? 0 : -EFAULT;
}

/* A leader that is made anew: a copy of the keeper, with anonymous memory where the views were. */
static struct {
	const struct sf_mirror *from;
	const u64 *list;
	u64 n;
	s64 ret;
} restore;

/* A settled one has copies of all its pages. Where the kernel cannot make them (before Linux 5.14) they follow the file until
 * others store to it. */
static void make_own(const struct sf_map *m, u64 at, u64 len, u64 prot)
{
	if (!(m->flags & SF_M_SETTLED) || sys3(NR_mprotect, at, len, PROT_READ | PROT_WRITE) < 0)
		return;
	sys3(NR_madvise, at, len, MADV_POPULATE_WRITE);
	sys3(NR_mprotect, at, len, prot);
}

static s64 restore_one(const struct sf_map *m, s64 fd)
{
	u64 len = m->end - m->start;
	s64 r = sys6(NR_mmap, m->ref, len, PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE | MAP_NORESERVE, fd, m->offset);
	if (!sf_failed(r))
		make_own(m, m->ref, len, PROT_READ);
	if (!sf_failed(r))
		r = sys6(NR_mmap, window_shared(m->ref), len, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, m->offset);
	if (!sf_failed(r))
		r = sys3(NR_madvise, window_shared(m->ref), len, MADV_DONTFORK);
	for (u64 i = 0; !sf_failed(r) && i < restore.n; i++) {
		const u64 *l = restore.list + 3 * i; /* address, length, protection */
		u64 from = l[0] > m->start ? l[0] : m->start, to = l[0] + l[1] < m->end ? l[0] + l[1] : m->end;
		if (from < to)
			r = sys6(NR_mmap, from, to - from, l[2], MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd,
				 m->offset + (from - m->start));
		if (from < to && !sf_failed(r))
			make_own(m, from, to - from, l[2]);
	}
	return sf_failed(r) ? r : 0;
}

/* The file of a mapping, as the launcher holds it open. */
static void held_by_launcher(const struct sf_map *m, char path[64])
{
	u32 n = 6;
	memcpy(path, "/proc/", 6);
	n += sf_decimal(path + n, (u64)sf_boot.launcher_pid);
	memcpy(path + n, "/fd/", 4);
	n += 4;
	n += sf_decimal(path + n, (u64)m->hold);
	path[n] = 0;
}

static void restore_all(void)
{
	for (u32 i = 0; i < restore.from->maps && !restore.ret; i++) {
		const struct sf_map *m = &restore.from->map[i];
		char path[64];
		if (!m->ref)
			continue;
		held_by_launcher(m, path);
		s64 fd = m->hold < 0 ? -EBADF : sys3(NR_open, path, 02000002 /* O_RDWR|O_CLOEXEC */, 0);
		restore.ret = fd < 0 ? fd : restore_one(m, fd);
	}
}

/* `list`: the winner's mappings (recover.c, sf_remap). Maps the files again; the launcher then
 * copies what the winner's differ in. */
s64 sf_shared_restore(const struct sf_mirror *from, const u64 *list, u64 n)
{
	u32 any = 0;
	for (u32 i = 0; i < from->maps; i++)
		any |= from->map[i].ref != 0;
	if (!any)
		return 0;
	restore.from = from;
	restore.list = list;
	restore.n = n;
	restore.ret = 0;
	s64 r = sf_with_own_table(restore_all);
	return r < 0 ? r : restore.ret;
}

/* ---- files that processes of a tree share ---- */

#define MADV_DOFORK 11

/* Of the files that are mapped at a fork, those that have a name. One that the program has made in a tmpfs becomes a segment:
 * followers get copies that the launcher has. Any other stays a view. */
static struct sf_shared_file by_name[SF_MAPS_MAX];

static const struct sf_shared_file *named(const struct sf_shared_file *table, u32 n, const struct sf_map *m)
{
	for (u32 i = 0; i < n; i++)
		if (table[i].dev == m->dev && table[i].ino == m->ino)
			return &table[i];
	return NULL;
}

/* Whether there is a view that a copy of this process could not have as well yet. */
int sf_shared_stays_alone(void)
{
	for (u32 i = 0; i < app.maps; i++)
		if (app.map[i].ref && !(app.map[i].flags & SF_M_COMMON))
			return 1;
	return 0;
}

/* Whether bytes of the program's memory lie in a view that other processes of the domain may store to. */
int sf_shared_in_view(u64 at, u64 len)
{
	for (u32 i = 0; i < app.maps; i++)
		if (app.map[i].ref && overlaps(&app.map[i], at, at + (len ? len : 1)))
			return 1;
	return 0;
}

/* Leader, about a futex in a view: processes wait for a word of the file, which the kernel knows by the window. */
u64 sf_shared_word(u64 at)
{
	for (u32 i = 0; i < app.maps; i++)
		if (app.map[i].ref && app.map[i].start <= at && at < app.map[i].end)
			return window_shared(app.map[i].ref) + (at - app.map[i].start);
	return at;
}

/* Leader, in a domain: the words that a futex call names. */
void sf_shared_translate(u64 call[7])
{
	const u32 op = (u32)call[2] & FUTEX_CMD;
	call[1] = sf_shared_word(call[1]);
	if (op == FUTEX_REQUEUE || op == FUTEX_CMP_REQUEUE || op == FUTEX_WAKE_OP)
		call[5] = sf_shared_word(call[5]);
}

/* Around the making of a copy that is a leader as well: it has windows of its own. */
void sf_shared_windows(int inherited)
{
	for (u32 i = 0; i < app.maps; i++)
		if (app.map[i].ref)
			sys3(NR_madvise, window_shared(app.map[i].ref), app.map[i].end - app.map[i].start,
			     inherited ? MADV_DOFORK : MADV_DONTFORK);
}

/* A copy: the launcher's thread for its group holds no file by these numbers. */
void sf_shared_unheld(void)
{
	for (u32 i = 0; i < app.maps; i++)
		app.map[i].hold = -1;
}

/* Whether there are views of files that the program has made, and another of its programs may map by their names. */
int sf_shared_own(void)
{
	for (u32 i = 0; i < app.maps; i++)
		if (app.map[i].ref && (app.map[i].flags & SF_M_OWN))
			return 1;
	return 0;
}

/* Leader: whether every file that is mapped shared and writable can be shared with a copy. One that has no name can be
 * reached by the program's own processes alone, one that they made in a tmpfs becomes a segment (segment.c). `own`: there is
 * no copy, and those that the program has made are meant alone. `why`, where not: which file, as SF_REFUSED_FILE has it. */
int sf_shared_may_join(const void **table, u32 *bytes, int own, s64 *why)
{
	u32 n = 0;
	for (u32 i = 0; i < app.maps; i++) {
		const struct sf_map *m = &app.map[i];
		if (!m->ref || (m->flags & SF_M_COMMON) || named(by_name, n, m) || (own && !(m->flags & SF_M_OWN)))
			continue;
		/* The launcher looks: the program may have given up the rights to. */
		struct sf_shared_file f = { .dev = m->dev, .ino = m->ino, .flags = SF_M_COMMON };
		int r = m->hold < 0
				? 0
				: sf_segment_wanted((u64)m->hold, &f, m->offset + (m->end - m->start), SF_SEGMENT_NOW | SF_SEGMENT_HELD);
		if (r == SF_SEGMENT_NAMELESS || (own && r != 1) || (sf_alone() && !own))
			continue; /* one replica alone shares the file itself with its copies */
		*why = SF_REFUSED_FILE(m->hold, r < 0 ? -r : 0);
		if (r < 0 || (r == 0 && (G->options & SF_O_PAIR)))
			return 0;
		by_name[n++] = f;
	}
	*table = by_name;
	*bytes = n * (u32)sizeof *by_name;
	return 1;
}

/* Every replica: such files become segments, the leader's is the file, or stay views. What was stored has been written back.
 * `own`: those of the table alone. */
s64 sf_shared_joins(const void *table, u32 bytes, int own)
{
	for (u32 i = 0; i < app.maps;) {
		const struct sf_map m = app.map[i];
		const u64 len = m.end - m.start;
		const struct sf_shared_file *file = named(table, bytes / sizeof *by_name, &m);
		if (file && (file->flags & SF_M_COMMON))
			app.map[i].flags |= SF_M_COMMON;
		if (!m.ref || (own && !file) || (app.map[i].flags & SF_M_COMMON)) {
			i++;
			continue;
		}
		if (me.slot == 0) {
			s64 r = sf_sys(NR_mremap, window_shared(m.ref), 0, len, MREMAP_MAYMOVE | MREMAP_FIXED, m.start, 0);
			if (!sf_failed(r))
				r = sys3(NR_madvise, m.start, len, MADV_DOFORK);
			if (!sf_failed(r))
				r = sys3(NR_mprotect, m.start, len, m.flags >> SF_M_PROT & 7);
			if (sf_failed(r))
				return r;
		}
		s64 r = sf_domain_adopt(&m, file);
		if (sf_failed(r))
			return r;
		forget_shared(m.start, m.end);
		i = 0;
	}
	return 0;
}
