/* Domain: processes of a program that share writable memory, and whose turn it is to run.
 *
 *   anonymous, MAP_SHARED ──► private, as long as nobody is there to share it with
 *                         ──► at a fork: one segment for each replica index, inherited by the replicas' copies
 *   a file that the program has made in a tmpfs ──► private in the same way, until another program of its tree may map it
 *   any other file that has a name ──► a view in each of them, which is written back before a turn ends (shared.c)
 *
 * Replica r of every process of a domain maps the same segment, and no other replica does. Stores to it are no events,
 * so replicas of an index run one at a time: a process holds the baton from one call that may wait to the next one. A
 * leader takes a ticket with the baton; the ticket stands in its group's log, and followers take their turns in the order
 * of tickets. So a segment goes through the same stores in the same order at every index.
 *
 *   agreed on a call that may wait ──► all give the baton ──► the leader waits ──► result
 *     ──► an event of the agent's own: the leader takes the baton, the result names its ticket ──► followers wait for it
 *
 * Invariants
 *  1. A process of a domain touches memory of the program that may be a segment only while its replica holds the baton:
 *     where a call's arguments lie in one, the baton is kept (touches).
 *  2. Every ticket is taken and given back once at every index. Who cannot do that any more ends the domain: the launcher
 *     stops the tree (supervise.rs).
 *  3. A word of the domain carries its own check; one that was struck raises the alarm.
 *
 * Threads of a process hand its baton on with their turns; where none of them can run the process gives it (thread.c).
 *
 * A process that computes without a call that may wait, or spins on a plain load, is held up where all its replicas hold
 * the baton, as a thread is (align.c), and gives it there.
 *
 * A replica that is outvoted takes memory, segments and ticket of another one that holds the same. A follower that has
 * died is made anew from the leader: its turn is ended, or awaited (sf_baton_inherit), and it attaches the segments of its
 * index by their numbers (segment.c; crates/replica, domain.rs). A leader that has died is made anew from a follower in the
 * same way. It maps files by their names or the launcher's descriptors, and System V segments by the numbers that others have.
 *
 * Not covered: a dead leader's System V segments that no other process of the program has attached; memory checks of segments.
 * See mmap(2), futex(2); docs/concepts/replication.md, "Shared memory".
 */
#include "agent.h"
#include <asm/errno.h>

#define PAGE 4096ull
#define AT_FDCWD (-100)
#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_FIXED 0x10
#define MAP_ANONYMOUS 0x20
#define MAP_FIXED_NOREPLACE 0x100000
#define MREMAP_MAYMOVE 1
#define MREMAP_FIXED 2
#define EVERYBODY 0x7fffffff

/* Calls that do not wait and keep the baton: after so many a process gives it for a moment. */
#define SHARE 64u
/* A hand-over between cores takes some thousand ticks. */
#define SPIN 3000u
/* Who has given the baton lets a sleeper come first, for a tenth of a millisecond. */
#define COURTESY 250000u
/* A tenth of a second: turns of others, and less than the second after which one that sleeps is given up (recovery.rs, `DEAF`). */
#define PATIENCE 250000000u

struct domain {
	u64 next; /* ticket: the next one to be taken */
	u64 served[SF_SLOTS_MAX]; /* at each index: the ticket whose turn it is */
	u32 sleepers[SF_SLOTS_MAX];
	u64 id; /* by which the launcher tells domains apart */
	u32 named; /* how often a file has become a segment: others than those who map it may write to it (written.c) */
	u32 site; /* of a pair: the index of all processes here, also when this site leads; the other index has a page of its own */
};
_Static_assert(offsetof(struct domain, served) == 8, "crates/replica/src/abi.rs, DOMAIN_SERVED");
_Static_assert(sizeof(struct domain) <= SF_PARKED_AT, "behind it in the page: threads/parked.c");
#define D ((struct domain *)SF_DOMAIN)
#define INDEX (unlikely(G->options & SF_O_PAIR) ? D->site : me.slot)
#define BAD (~0ull)

/* ---- words that carry their check ---- */

static u64 seal(u64 ticket)
{
	u64 c = 0;
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(ticket));
	return (ticket & 0xffffffffffull) | c << 40;
}

static u64 opened(const u64 *word)
{
	u64 v = load(word), ticket = v & 0xffffffffffull;
	return seal(ticket) == v ? ticket : BAD;
}

/* The page is inherited: by the followers, and by every copy that a fork makes. Other programs of the tree attach it, if they
 * may: those that do not have turns of their own, and share nothing with these. */
s64 sf_domain_init(void)
{
	if (G->domain_page && sys3(NR_shmat, G->domain_page - 1, SF_DOMAIN, 0) == (s64)SF_DOMAIN && load(&D->id))
		return 0;
	s64 r = SF_DOMAIN;
	if (sys3(NR_mprotect, SF_DOMAIN, PAGE, PROT_READ | PROT_WRITE) < 0) /* there is none */
		r = sf_sys(NR_mmap, SF_DOMAIN, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1ull, 0);
	if (r != (s64)SF_DOMAIN)
		return r < 0 ? r : -ENOMEM;
	D->next = seal(0);
	for (u32 s = 0; s < SF_SLOTS_MAX; s++)
		D->served[s] = seal(0);
	store(&D->id, sf_mix(sf_tsc(), (u64)sf_boot.launcher_pid) | 1);
	return 0;
}

/* ---- the baton ---- */

static void sleep_on(u32 slot, u64 seen)
{
	static const s64 look[2] = { 0, 50 * 1000 * 1000 };
	__atomic_fetch_add(&D->sleepers[slot], 1, __ATOMIC_SEQ_CST);
	if ((u32)load(&D->served[slot]) == (u32)seen)
		sys4(NR_futex, &D->served[slot], FUTEX_WAIT, (u32)seen, look);
	__atomic_fetch_sub(&D->sleepers[slot], 1, __ATOMIC_SEQ_CST);
}

void sf_baton_give(void)
{
	const u64 next = me.ticket + 1;
	if (!me.holds)
		return;
	me.holds = 0;
	me.spent = 0;
	me.courteous = me.slot == 0 && load(&D->sleepers[INDEX]) != 0;
	__atomic_store_n(&D->served[INDEX], seal(next), __ATOMIC_SEQ_CST);
	store(&G->baton_given[me.slot], next);
	store(&G->baton_held[me.slot], 0);
	if (__atomic_load_n(&D->sleepers[INDEX], __ATOMIC_SEQ_CST))
		sys3(NR_futex, &D->served[INDEX], FUTEX_WAKE, EVERYBODY);
}

/* The process ends, as all its replicas have agreed: others hear of locks that it holds. */
void sf_domain_leave(void)
{
	if (me.slot == 0)
		sf_parked_ends(SF_NOBODY);
	if (app.domain && !me.holds)
		return;
	sf_threads_leave_locks();
	sf_baton_give();
}

/* Leader: does another process wait for its turn? */
int sf_baton_wanted(void)
{
	return app.domain && me.holds && load(&D->sleepers[INDEX]) != 0;
}

static int alarmed_domain(void)
{
	return unlikely(load(&G->alarm) != SF_A_QUIET) && me.next >= G->alarm_seq;
}

/* The leader takes a ticket. 0: an alarm. */
static int take_ticket(u64 *ticket)
{
	u64 start = sf_tsc();
	u32 odd = 0;
	while (me.courteous && opened(&D->next) == me.ticket + 1 && sf_tsc() - start < COURTESY)
		sys0(NR_sched_yield);
	me.courteous = 0;
	start = sf_tsc();
	for (;;) {
		u64 served = load(&D->served[INDEX]), turn = opened(&D->served[INDEX]), next = opened(&D->next);
		if (alarmed_domain())
			return 0;
		/* After a take-over there are tickets that others have of the primary, and wait with. */
		if (turn == BAD || next == BAD || (next != turn && next != turn + 1 && !(D->site && next > turn))) {
			/* Read one behind the other, they may be of different moments. */
			if (++odd > 1000) {
				sf_raise(SF_A_LOG, me.next);
				return 0;
			}
			continue;
		}
		odd = 0;
		if (next == turn) {
			u64 free = seal(next);
			store(&G->baton_held[0], 1);
			if (__atomic_compare_exchange_n(&D->next, &free, seal(next + 1), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
				*ticket = next;
				return 1;
			}
			store(&G->baton_held[0], 0);
			continue;
		}
		if (sf_tsc() - start < SPIN)
			__builtin_ia32_pause();
		else
			sleep_on(INDEX, served);
	}
}

/* A follower waits for its turn. An alarm finds it with its turn, as the others of its process, where that comes soon: those
 * who come before it are other processes, which go on. */
static void wait_for_turn(u64 ticket)
{
	u64 start = sf_tsc(), patience = 0;
	for (;;) {
		u64 served = load(&D->served[INDEX]), turn = opened(&D->served[INDEX]);
		if (turn == ticket)
			return;
		if (turn == BAD || turn > ticket)
			sf_raise(SF_A_LOG, me.next);
		if (alarmed_domain() && !patience)
			patience = sf_tsc() + PATIENCE;
		if (alarmed_domain() && sf_tsc() > patience) {
			sf_stand();
			continue;
		}
		if (sf_tsc() - start < SPIN)
			__builtin_ia32_pause();
		else
			sleep_on(INDEX, served);
	}
}

/* Of a pair: processes of this site have their turns here, whichever site leads. */
void sf_domain_of_site(u32 site)
{
	D->site = site;
}

/* The secondary: tickets up to this one are taken, should this site lead. */
static void is_taken(u64 ticket)
{
	u64 next = load(&D->next);
	while ((next & 0xffffffffffull) <= ticket &&
	       !__atomic_compare_exchange_n(&D->next, &next, seal(ticket + 1), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

static u32 kind_of_segments(void);

/* In another replica of its process: the turn of one that has died. A ticket that this one has given back, all had
 * agreed to give. 1: the successor holds what this replica holds; 0: neither holds any; -EAGAIN: others of that
 * index come first. */
s64 sf_baton_inherit(u32 slot)
{
	const u64 given = load(&G->baton_given[me.slot]);
	u64 turn = opened(&D->served[slot]);
	if (slot == 0 && kind_of_segments() == SF_D_LOST)
		return -EINVAL;
	/* It was taking a ticket, or had one that this replica has not come to. */
	if (slot == 0 && !me.holds && load(&G->baton_held[0]) && load(&G->baton_given[0]) == given)
		return -EINVAL;
	if (turn == BAD || (given && turn + 1 < given))
		return -EINVAL;
	if (given && turn + 1 == given) {
		turn = given;
		__atomic_store_n(&D->served[slot], seal(turn), __ATOMIC_SEQ_CST);
		sys3(NR_futex, &D->served[slot], FUTEX_WAKE, EVERYBODY);
	}
	if (!me.holds)
		return 0;
	return turn == me.ticket ? 1 : turn < me.ticket ? -EAGAIN : -EINVAL;
}

/* A replica that was just made is where the one is that it was made from. */
void sf_baton_is_of(u32 slot)
{
	store(&G->baton_given[me.slot], load(&G->baton_given[slot]));
	store(&G->baton_held[me.slot], me.holds);
	me.courteous = 0;
}

/* For a site that joins: whose turn it is, where all processes stand. */
void sf_domain_give(u64 *tickets, u64 *turn)
{
	*tickets = load(&D->next);
	*turn = load(&D->served[INDEX]);
}

/* That site, for all of its processes. */
void sf_domain_take(u64 tickets, u64 turn)
{
	store(&D->next, tickets);
	store(&D->served[INDEX], turn);
}

static void hold_domain(u64 ticket)
{
	me.ticket = ticket;
	me.holds = 1;
	me.spent = 0;
	store(&G->baton_held[me.slot], 1);
}

/* Leader, in the middle of a call: it has its turn from here on. 0: an alarm. */
int sf_domain_takes_turn(void)
{
	u64 ticket;
	if (!app.domain)
		sf_domain_enter();
	if (me.holds)
		return 1;
	if (!take_ticket(&ticket))
		return 0;
	hold_domain(ticket);
	return 1;
}

/* ... and a follower. */
void sf_domain_awaits_turn(u64 ticket)
{
	if (!app.domain)
		sf_domain_enter();
	if (me.holds)
		return;
	wait_for_turn(ticket);
	hold_domain(ticket);
}

/* Leader: a file is a segment from here on. */
void sf_domain_has_named(void)
{
	__atomic_fetch_add(&D->named, 1, __ATOMIC_SEQ_CST);
}

/* How often that has been. */
u32 sf_domain_names(void)
{
	return load(&D->named);
}

/* ---- segments ---- */

#define IPC_RMID 0
#define IPC_CREAT 01000u
#define SHM_NORESERVE 010000u

/* What a leader that is made again has to find. Views are mapped again as those of a process alone are: sf_shared_restore. */
static u32 kind_of_segments(void)
{
	u32 kind = SF_D_ANONYMOUS;
	for (u32 i = 0; i < app.segments; i++) {
		if (!app.segment[i].real)
			return SF_D_LOST;
		if (app.segment[i].dev || app.segment[i].ino)
			kind = SF_D_NAMED;
	}
	return app.segments_lost ? SF_D_LOST : kind;
}

/* The launcher is told whether a leader that has died can be made again. */
void sf_domain_tell(void)
{
	store(&G->domain, app.domain ? kind_of_segments() : 0);
}

void sf_domain_enter(void)
{
	if (sf_alone())
		return;
	app.domain = 1;
	sf_shared_unsettle();
	sf_domain_tell();
	G->snapshot_broken = 1; /* a copy of one replica would store into what the others have */
}

u64 sf_domain_id(void)
{
	return load(&D->id);
}

static void add_domain(u64 start, u64 end, u32 prot, u32 real)
{
	if (app.segments == SF_SEGMENTS_MAX) {
		app.segments_lost = 1;
		return;
	}
	app.segment[app.segments++] = (struct sf_segment){ .start = start, .end = end, .prot = prot, .real = real };
}

/* Of a file: the same for all who map it. */
static void is_of_file(struct sf_segment *s, u64 dev, u64 ino, u64 offset)
{
	s->dev = dev;
	s->ino = ino;
	s->what = sf_mix(dev, ino) + offset;
}

static void cut_domain(u64 at)
{
	for (u32 i = 0, n = app.segments; i < n; i++) {
		struct sf_segment *s = &app.segment[i];
		if (s->start >= at || s->end <= at)
			continue;
		struct sf_segment tail = *s;
		tail.start = at;
		tail.what += at - s->start;
		s->end = at;
		if (app.segments == SF_SEGMENTS_MAX)
			app.segments_lost = 1;
		else
			app.segment[app.segments++] = tail;
	}
}

static void forget_domain(u64 lo, u64 hi)
{
	cut_domain(lo);
	cut_domain(hi);
	for (u32 i = 0; i < app.segments;) {
		const struct sf_segment *s = &app.segment[i];
		if (s->start < lo || s->end > hi) {
			i++;
			continue;
		}
		app.segment[i] = app.segment[--app.segments];
		memset(&app.segment[app.segments], 0, sizeof *s);
	}
}

static void moved(const u64 a[6], u64 to)
{
	u64 lo = a[0], hi = sf_page_up(a[0] + a[1]), new = sf_page_up(a[2]);
	for (u32 i = 0; i < app.segments; i++) {
		struct sf_segment *s = &app.segment[i];
		if (!a[1] && s->real && s->start <= lo && lo < s->end) { /* a second mapping of it (mremap(2)) */
			const struct sf_segment first = *s;
			add_domain(to, to + new, first.prot, 1);
			if (!app.segments_lost)
				app.segment[app.segments - 1].what = first.what + (lo - first.start);
			return;
		}
		if (s->start >= hi || s->end <= lo)
			continue;
		/* Anything but a whole one that keeps its length. */
		if (s->start != lo || s->end != hi || new != hi - lo || (a[3] & ~(u64)(MREMAP_MAYMOVE | MREMAP_FIXED))) {
			app.segments_lost = 1;
			return;
		}
		s->start = to;
		s->end = to + new;
	}
}

/* Every replica, after a call that changes memory has succeeded with `ret`. */
void sf_domain_changed(u32 nr, const u64 a[6], s64 ret)
{
	struct sf_shared_file file;
	switch (nr) {
	case NR_mmap:
		if (a[3] & MAP_FIXED)
			forget_domain((u64)ret, (u64)ret + sf_page_up(a[1]));
		if (sf_shared_is_segment(&file)) {
			add_domain((u64)ret, (u64)ret + sf_page_up(a[1]), a[2] & 7, SF_BY_NAME);
			is_of_file(&app.segment[app.segments - 1], file.dev, file.ino, a[5]);
			sf_domain_enter();
		} else if ((a[3] & MAP_SHARED) && (a[3] & MAP_ANONYMOUS))
			add_domain((u64)ret, (u64)ret + sf_page_up(a[1]), a[2] & 7, 0);
		break;
	case NR_munmap: forget_domain(a[0], a[0] + sf_page_up(a[1])); break;
	case NR_mprotect:
	case NR_pkey_mprotect:
		if (!app.segments)
			break;
		cut_domain(a[0]);
		cut_domain(a[0] + sf_page_up(a[1]));
		for (u32 i = 0; i < app.segments; i++)
			if (app.segment[i].start >= a[0] && app.segment[i].end <= a[0] + sf_page_up(a[1]))
				app.segment[i].prot = a[2] & 7;
		break;
	case NR_mremap:
		if (a[3] & MREMAP_FIXED)
			forget_domain((u64)ret, (u64)ret + sf_page_up(a[2]));
		moved(a, (u64)ret);
		break;
	}
}

/* In a pair: a file that its site's processes share is mapped. */
void sf_domain_named(const u64 a[6], s64 ret)
{
	if (a[3] & MAP_FIXED)
		forget_domain((u64)ret, (u64)ret + sf_page_up(a[1]));
	add_domain((u64)ret, (u64)ret + sf_page_up(a[1]), a[2] & 7, SF_BY_NAME);
	sf_domain_enter();
}

static int in_segment(u64 at, u64 len)
{
	if (unlikely(app.map_files) && app.domain && sf_shared_in_view(at, len))
		return 1;
	for (u32 i = 0; i < app.segments; i++)
		if (app.segment[i].real && at < app.segment[i].end && at + (len ? len : 1) > app.segment[i].start)
			return 1;
	return 0;
}

/* A word that other processes may wait for, and that they change. */
int sf_domain_word(u64 at)
{
	return (app.segments || app.map_files) && in_segment(at, 4);
}

/* The name of a word that several processes have, equal in all of them, wherever they have it; 0: it is none. */
u64 sf_domain_key(u64 at)
{
	for (u32 i = 0; i < app.maps; i++) {
		const struct sf_map *m = &app.map[i];
		if (m->ref && m->start <= at && at < m->end)
			return sf_mix(0, sf_mix(m->dev, m->ino) + m->offset + (at - m->start)) | 1;
	}
	for (u32 i = 0; i < app.segments; i++) {
		const struct sf_segment *s = &app.segment[i];
		if (s->real && s->what && s->start <= at && at < s->end)
			return sf_mix(0, s->what + (at - s->start)) | 1;
	}
	return 0;
}

/* Pages behind the end of a file cannot be read. */
static void copy_page(u64 to, u64 from)
{
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		if (!sf_page_is_zero((const u64 *)from))
			memcpy((void *)to, (const void *)from, PAGE);
	}
	me.guard = NULL;
}

/* Memory that copies of this replica inherit, and that one made anew attaches by its number (segment.c). Marked as removed,
 * it goes with the last of them. */
static s64 common(u64 at, u64 len)
{
	s64 id = sys3(NR_shmget, 0 /* IPC_PRIVATE */, len, IPC_CREAT | SHM_NORESERVE | 0600);
	if (sf_failed(id))
		return id;
	s64 r = sys3(NR_shmat, id, at, 0);
	sys3(NR_shmctl, id, IPC_RMID, 0);
	return r;
}

/* Private memory becomes memory that a copy of this replica has in common with it. */
static s64 share(const struct sf_segment *s)
{
	const u64 len = s->end - s->start;
	s64 to = common(0, len);
	if (sf_failed(to))
		return to;
	if (!(s->prot & PROT_READ))
		sys3(NR_mprotect, s->start, len, s->prot | PROT_READ);
	for (u64 at = 0; at < len; at += PAGE)
		copy_page((u64)to + at, s->start + at);
	s64 r = sf_sys(NR_mremap, (u64)to, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, s->start, 0);
	if (!sf_failed(r) && s->prot != (PROT_READ | PROT_WRITE))
		r = sys3(NR_mprotect, s->start, len, s->prot);
	return sf_failed(r) ? r : 0;
}

/* ---- System V ---- */

#define OF_SYSV (~0ull) /* in place of a device */
#define IPC_STAT 2u
#define SHM_RDONLY 010000u
#define SHM_RND 020000u

/* After shmget(2), in every replica: what nobody else can have made holds zeros. `made`: the leader has seen that. */
void sf_domain_made(const u64 a[6], s64 id, u32 made)
{
	if (!made && !sf_segment_made(a))
		return;
	for (u32 i = 0; i < app.made_n; i++)
		if (app.made[i].id == (s32)id)
			return;
	if (app.made_n < SF_MADE_MAX)
		app.made[app.made_n++] = (struct sf_made){ a[1], (s32)id, 0 };
}

/* Never attached: struct shmid64_ds has the time of that behind the rights and the size. */
static int untouched(s32 id)
{
	u64 ds[14];
	return sys3(NR_shmctl, sf_ipc_own(SF_IPC_SEGMENT, id), IPC_STAT, ds) == 0 && ds[7] == 0;
}

s64 sf_domain_attach(const u64 a[6], s64 forced)
{
	const struct sf_made *m = NULL;
	u32 prot = (u32)a[2] & SHM_RDONLY ? PROT_READ : PROT_READ | PROT_WRITE;
	for (u32 i = 0; i < app.made_n; i++)
		if (app.made[i].id == (s32)a[0])
			m = &app.made[i];
	if (me.slot == 0) {
		if (!m || !untouched(m->id) || ((u32)a[2] & ~(SHM_RDONLY | SHM_RND)) || app.segments == SF_SEGMENTS_MAX)
			sf_end(SF_E_REFUSED, SF_NR_SHARED_ATTACH, 0, me.regs);
	}
	if (!m)
		return -EINVAL;
	/* In a pair each site has the segment itself; a re-run stores to nobody's. */
	const int real = me.slot == 0 || ((G->options & SF_O_PAIR) && me.role != SF_RERUN);
	s64 r = real ? sys3(NR_shmat, sf_ipc_own(SF_IPC_SEGMENT, (s32)a[0]), me.slot == 0 ? a[1] : (u64)forced, a[2])
		     : common((u64)forced, sf_page_up(m->bytes));
	if (!sf_failed(r) && !real && prot == PROT_READ && sf_failed(sys3(NR_mprotect, r, sf_page_up(m->bytes), prot)))
		r = -ENOMEM;
	if (sf_failed(r))
		return r;
	app.segment[app.segments++] = (struct sf_segment){ .start = (u64)r,
							   .end = (u64)r + sf_page_up(m->bytes),
							   .dev = OF_SYSV,
							   .prot = prot,
							   .real = 1,
							   .what = sf_mix(OF_SYSV, a[0]) };
	sf_domain_enter();
	return r;
}

s64 sf_domain_detach(const u64 a[6])
{
	for (u32 i = 0; i < app.segments; i++) {
		const struct sf_segment s = app.segment[i];
		if (s.dev != OF_SYSV || s.start != a[0])
			continue;
		s64 r = me.slot == 0 ? sys1(NR_shmdt, a[0]) : sys2(NR_munmap, s.start, s.end - s.start);
		if (!r)
			forget_domain(s.start, s.end);
		return r;
	}
	return -EINVAL;
}

/* A file that is mapped shared. The leader's mapping is the file's already; `f`: others map it by its name. */
s64 sf_domain_adopt(const struct sf_map *m, const struct sf_shared_file *f)
{
	const u32 prot = m->flags >> SF_M_PROT & 7;
	struct sf_segment s = { .start = m->start, .end = m->end, .prot = prot, .real = f ? SF_BY_NAME : 1 };
	is_of_file(&s, m->dev, m->ino, m->offset);
	s64 r = me.slot == 0 ? 0 : f ? sf_segment_replaces(m->start, m->end, m->offset, prot, f) : share(&s);
	if (app.segments == SF_SEGMENTS_MAX)
		return -ENOMEM;
	app.segment[app.segments++] = s;
	return r;
}

/* ---- an event of the agent's own: join, take the baton, or wait until a call would not wait ---- */

#define POLLIN 1u
#define POLLOUT 4u
enum { BATON, JOIN, READY, OWN };
struct turn {
	u64 what;
	s64 ret;
	struct {
		s32 fd;
		u16 events, revents;
	} poll;
	u64 bytes, flags; /* READY: what is sent or received, and how (recv(2)) */
	int accepts;      /* ... or a connection is accepted, which another process may take first */
};

static enum sf_claim claim_domain(struct sf_event *e, struct sf_regs *r, void *arg)
{
	const struct turn *t = arg;
	(void)r;
	me.own_event = 1;
	*e = (struct sf_event){ .seq = me.next, .kind = SF_K_TURN, .lockstep = 1 };
	e->args[0] = t->what;
	return SF_CLAIMED;
}

static void agreed_domain(struct sf_event *e, struct sf_regs *r, void *arg)
{
	const struct turn *t = arg;
	(void)e, (void)r;
	if (t->what != JOIN && t->what != OWN)
		sf_baton_give();
}

#define MSG_DONTWAIT 0x40u
#define MSG_WAITALL 0x100u
#define O_NONBLOCK 04000
#define PIPE_BUF 4096u /* what a pipe takes at once where it takes any (pipe(7)) */

static int is_regular(s32 fd)
{
	u64 st[18]; /* struct stat: the mode is the lower half of the fourth word */
	return sys2(NR_fstat, fd, st) == 0 && ((u32)st[3] & 0170000) == 0100000;
}

/* The leader waits without the baton. 0: the launcher's word. */
static int is_ready_domain(struct sf_event *e, struct turn *t)
{
	s64 flags = sys3(NR_fcntl, t->poll.fd, 3 /* F_GETFL */, 0);
	if (flags < 0 || (flags & O_NONBLOCK) || (t->flags & MSG_DONTWAIT) || is_regular(t->poll.fd))
		return 1;
	/* Waiting in the middle of it, for somebody who may wait for the baton, would have no end. */
	if (t->accepts || (t->flags & MSG_WAITALL) || (t->poll.events == POLLOUT && t->bytes > PIPE_BUF))
		sf_end(SF_E_REFUSED, SF_NR_SHARED_WAIT, 0, me.regs);
	for (;;) {
		const u64 call[7] = { NR_poll, (u64)&t->poll, 1, -1ull, 0, 0, 0 };
		tls.abort = 0;
		me.rewound = 0;
		me.interruptible = 1;
		barrier();
		if (unlikely(sf_signal_pending() | (load(&G->alarm) != SF_A_QUIET)))
			tls.abort = 1;
		s64 r = sf_call_agreed(e, call);
		me.interruptible = 0;
		tls.abort = 0;
		if (r != -EINTR && r != SF_NOT_MADE)
			return 1;
		if (sf_signal_pending())
			return 1; /* the call finds it, too */
		if (load(&G->alarm))
			return 0;
	}
}

static const struct sf_result *act_domain(struct sf_event *e, void *arg)
{
	struct turn *t = arg;
	u64 ticket = 0;
	const void *table = NULL;
	u32 bytes = 0;
	s64 why = 0;
	if (t->what == JOIN && !sf_shared_may_join(&table, &bytes, 0, &why))
		sf_end(SF_E_REFUSED, SF_NR_SPAWN_SHARED, why, me.regs);
	if (t->what == OWN && !sf_shared_may_join(&table, &bytes, 1, &why))
		bytes = 0;
	if (t->what == READY && !is_ready_domain(e, t))
		return NULL;
	if (t->what == BATON && !take_ticket(&ticket))
		return NULL;
	struct sf_result *res = sf_result_begin(e, 0);
	res->aux = ticket;
	if (bytes)
		sf_result_bytes(res, table, bytes);
	if (sf_signal_pending())
		res->flags |= SF_R_MORE;
	sf_result_end(res);
	return res;
}

static int done_domain(struct sf_event *e, const struct sf_result *res, void *arg)
{
	struct turn *t = arg;
	if (t->what == READY)
		return 0;
	if (t->what == BATON) {
		if (me.slot != 0 && (G->options & SF_O_PAIR))
			is_taken(res->aux);
		if (me.slot != 0)
			wait_for_turn(res->aux);
		hold_domain(res->aux);
		return 0;
	}
	if (t->what == OWN && !res->out_len)
		return 0;
	t->ret = sf_shared_joins(PAYLOAD + res->out_off, res->out_len, t->what == OWN);
	for (u32 i = 0; i < app.segments && !t->ret; i++) {
		struct sf_segment *s = &app.segment[i];
		if (s->real || t->what == OWN)
			continue;
		t->ret = share(s);
		s->real = 1;
		s->what = sf_mix(sf_mix(G->leader_pid, e->seq), s->start);
	}
	if (t->ret && me.slot == 0)
		sf_end(SF_E_REFUSED, SF_NR_SPAWN_MEMORY, t->ret, me.regs);
	if (t->ret)
		me.poison |= SF_SPOILED | SF_SPOILED_ALONE;
	sf_futex_shared();
	sf_domain_enter();
	return 0;
}

static const struct sf_step turns = { claim_domain, agreed_domain, act_domain, NULL, done_domain, 0 };

/* On the way back to the program. Where no thread runs, signals wait for the next event. */
void sf_baton(struct sf_regs *r)
{
	struct turn t = { .what = BATON };
	struct sf_event e;
	me.doing = SF_D_ENTROPY;
	me.doing_desc = SF_DESC_BATON;
	sf_shared_hand_over(r);
	if ((sf_event(&e, r, &turns, &t) & SF_R_MORE) && app.current != SF_NOBODY)
		sf_more_signals(r);
}

/* Before a thread of this process goes on. */
void sf_baton_back(struct sf_regs *r)
{
	if (!me.holds)
		sf_baton(r);
}

static int unshared(void)
{
	for (u32 i = 0; i < app.segments; i++)
		if (!app.segment[i].real)
			return 1;
	return 0;
}

/* The call that comes next is ready, behind an event that takes the baton (sf_domain_lacks), if that was given. */
static void is_ready_behind(void)
{
	me.ready = me.next + (app.domain && !me.holds);
}

/* Before a fork: memory that parent and child will share becomes segments. 1: start the call again. */
int sf_domain_before_fork(struct sf_regs *r)
{
	struct turn t = { .what = JOIN };
	struct sf_event e;
	if (!unshared() && !sf_shared_stays_alone())
		return 0;
	if (app.segments_lost)
		return 0; /* refused by name: spawn.c */
	if (sf_shared_all_written(r))
		return 1;
	sf_event(&e, r, &turns, &t);
	is_ready_behind();
	return 1;
}

/* Before a child that becomes another program, and before one of them is mapped twice: files that the program has made, and maps,
 * become segments, since that program may map them by their names. Where that cannot be they stay views, and it is refused
 * there. 1: start the call again. */
int sf_domain_of_own(struct sf_regs *r)
{
	struct sf_event e;
	if (me.ready == me.next || app.spawn.active || !sf_shared_own())
		return 0;
	if (sf_shared_all_written(r))
		return 1;
	sf_event(&e, r, &turns, &(struct turn){ .what = OWN });
	is_ready_behind();
	return 1;
}

/* Whether a child would have memory in common with its parent that is none yet, or cannot become it. */
int sf_domain_refuses(void)
{
	return app.segments_lost || unshared() || sf_shared_stays_alone();
}

/* ---- what calls do with the baton ---- */

static int vector_touches(u64 at, u64 n)
{
	u64 v[2];
	if (in_segment(at, n * 16))
		return 1;
	for (u64 i = 0; i < n && i < 1024; i++)
		if (sf_user_bytes(v, at + 16 * i, sizeof v) == 0 && in_segment(v[0], v[1]))
			return 1;
	return 0;
}

static int message_touches(u64 at)
{
	u64 h[7];
	if (in_segment(at, sizeof h))
		return 1;
	if (sf_user_bytes(h, at, sizeof h) < 0)
		return 0;
	return (h[0] && in_segment(h[0], (u32)h[1])) || vector_touches(h[2], h[3]) || (h[4] && in_segment(h[4], h[5]));
}

/* Whether bytes that the call reads or writes lie in a segment. */
static int touches(const struct sf_call *c, u32 nr, const u64 a[6])
{
	if (nr == NR_futex)
		return 0; /* its word is compared by the kernel, and limits lie on a stack */
	for (u32 i = 0; i < 6; i++) {
		const struct sf_arg *g = &c->arg[i];
		u64 n = g->len < 6 ? a[g->len] : g->cap < 6 ? a[g->cap] : 1;
		if (g->kind <= SF_A_VAL || !a[i])
			continue;
		switch (g->kind) {
		case SF_A_IN_IOV:
		case SF_A_OUT_IOV:
			if (vector_touches(a[i], n))
				return 1;
			break;
		case SF_A_IN_MSG:
		case SF_A_OUT_MSG:
			if (message_touches(a[i]))
				return 1;
			break;
		case SF_A_OUT_ADDR: {
			u32 len = 0; /* of an address: at most 128 bytes */
			if (in_segment(n, sizeof len) ||
			    (sf_user_bytes(&len, n, sizeof len) == 0 && in_segment(a[i], len < 128 ? len : 128)))
				return 1;
			break;
		}
		case SF_A_FDSET:
			if (in_segment(a[i], (n + 63) / 64 * 8))
				return 1;
			break;
		default:
			if (in_segment(a[i], n * g->size + g->plus))
				return 1;
		}
	}
	return 0;
}

static int sends_domain(u32 nr)
{
	switch (nr) {
	case NR_write:
	case NR_pwrite64:
	case NR_writev:
	case NR_pwritev:
	case NR_pwritev2:
	case NR_sendto:
	case NR_sendmsg: return 1;
	}
	return 0;
}

static int accepts(u32 nr)
{
	return nr == NR_accept || nr == NR_accept4;
}

static int receives(u32 nr)
{
	switch (nr) {
	case NR_read:
	case NR_pread64:
	case NR_readv:
	case NR_preadv:
	case NR_preadv2:
	case NR_recvfrom:
	case NR_recvmsg: return 1;
	}
	return accepts(nr);
}

static int waits(u32 nr, const u64 a[6])
{
	const u32 op = (u32)a[1] & FUTEX_CMD;
	if (nr == NR_futex)
		return op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET || op == FUTEX_WAIT_REQUEUE_PI || op == FUTEX_LOCK_PI ||
		       op == FUTEX_LOCK_PI2;
	switch (nr) {
	case NR_sched_yield:
	case NR_fsync:
	case NR_fdatasync:
	case NR_sync:
	case NR_sync_file_range:
	case NR_syncfs: return 1;
	}
	return sf_waits[nr & 511] != 0;
}

/* Whether a turn may end at this call. */
int sf_domain_waits(u32 nr, const u64 a[6])
{
	return app.domain && waits(nr, a);
}

/* The descriptor through which a call changes a file. */
static s64 changes(u32 nr, const u64 a[6])
{
	switch (nr) {
	case NR_write:
	case NR_pwrite64:
	case NR_writev:
	case NR_pwritev:
	case NR_pwritev2:
	case NR_ftruncate:
	case NR_fallocate:
	case NR_sendfile: return (s64)(u32)a[0];
	case NR_splice:
	case NR_copy_file_range: return (s64)(u32)a[2];
	case NR_mmap: return (a[3] & MAP_SHARED) && !(a[3] & MAP_ANONYMOUS) ? (s64)(u32)a[4] : -1;
	}
	return -1;
}

/* The same, where such a file may be memory that processes share. */
s64 sf_domain_changes(u32 nr, const u64 a[6])
{
	return unlikely(load(&D->named)) && !sf_alone() && !(G->options & SF_O_PAIR) ? changes(nr, a) : -1;
}

/* Leader: whether to open this file may take as long as others like: a FIFO, a terminal. */
static int opens_at_leisure(u32 nr, const u64 a[6])
{
	u64 st[18] = { 0 }; /* struct stat: the mode is the first half of the fourth word */
	const int named = nr == NR_open || nr == NR_creat;
	if (sys4(NR_newfstatat, named ? AT_FDCWD : (s64)(s32)a[0], a[named ? 0 : 1], st, 0) < 0)
		return 0;
	const u32 kind = (u32)st[3] & 0170000;
	return kind != 0100000 /* S_IFREG */ && kind != 0040000 /* S_IFDIR */;
}

/* Whether a file is a segment of this process. */
int sf_domain_has(u64 dev, u64 ino)
{
	for (u32 i = 0; i < app.segments; i++)
		if (app.segment[i].ino && app.segment[i].dev == dev && app.segment[i].ino == ino)
			return 1;
	return 0;
}

static int of_a_segment(s64 fd, u32 nr)
{
	u64 st[18]; /* struct stat: device and inode come first */
	int any = 0;
	for (u32 i = 0; i < app.segments; i++)
		any |= app.segment[i].ino != 0;
	if (!any || fd < 0 || sys2(NR_fstat, fd, st) < 0)
		return 0;
	for (u32 i = 0; i < app.segments; i++)
		if (app.segment[i].ino && app.segment[i].dev == st[0] && app.segment[i].ino == st[1])
			return app.segment[i].real != SF_BY_NAME; /* those: segment.c, written.c */
	return 0;
}

static u64 length_domain(u32 nr, const u64 a[6])
{
	u64 at = a[1], n = a[2], v[2], h[7] = { 0 }, sum = 0;
	switch (nr) {
	case NR_sendmsg:
	case NR_recvmsg:
		if (sf_user_bytes(h, a[1], sizeof h) < 0)
			return 0;
		at = h[2], n = h[3];
		break;
	case NR_readv:
	case NR_writev:
	case NR_preadv:
	case NR_pwritev:
	case NR_preadv2:
	case NR_pwritev2: break;
	default: return a[2];
	}
	for (u64 i = 0; i < n && i < 1024; i++)
		if (sf_user_bytes(v, at + 16 * i, sizeof v) == 0)
			sum += v[1];
	return sum;
}

/* Before a call that moves bytes of a segment, and so keeps the baton: others run until it would not wait. 1: start the
 * call again. While other threads could go on it is only tried (try.c), and does not wait. */
int sf_domain_ready(struct sf_regs *r, const struct sf_call *c, u32 nr, const u64 a[6])
{
	struct turn t = { .what = READY, .poll = { (s32)a[0], sends_domain(nr) ? POLLOUT : POLLIN, 0 } };
	struct sf_event e;
	if (me.ready == me.next || !(sends_domain(nr) || receives(nr)) || (app.threads > 1 && sf_threads_may_wake()) || !touches(c, nr, a))
		return 0;
	t.flags = nr == NR_sendto || nr == NR_recvfrom ? a[3] : nr == NR_sendmsg || nr == NR_recvmsg ? a[2] : 0;
	t.bytes = length_domain(nr, a);
	t.accepts = accepts(nr);
	sf_event(&e, r, &turns, &t);
	is_ready_behind();
	return 1;
}

/* Before a call: whoever has given the baton for an event before it takes it. 1: start the call again. */
int sf_domain_lacks(struct sf_regs *r)
{
	struct sf_event e;
	if (me.holds || me.ready != me.next + 1)
		return 0;
	sf_event(&e, r, &turns, &(struct turn){ .what = BATON });
	return 1;
}

/* Each process that opens a shared memory object may set its length, and after the first one nothing changes. */
static int keeps_the_length(u32 nr, const u64 a[6])
{
	u64 st[18]; /* struct stat: st_size is word 6 */
	return nr == NR_ftruncate && sys2(NR_fstat, (u32)a[0], st) == 0 && st[6] == a[1];
}

/* Agreed on, in a domain: is the baton given before the call? */
void sf_domain_call(const struct sf_call *c, u32 nr, const u64 a[6], struct sf_regs *r)
{
	if (c->class == SF_REFUSE)
		return;
	if (app.segments_lost)
		sf_end(SF_E_REFUSED, SF_NR_SHARED_CHANGE, 0, r);
	if (c->handler == SF_H_thread)
		return; /* of this process alone */
	if (me.slot == 0 && of_a_segment(changes(nr, a), nr) && !keeps_the_length(nr, a))
		sf_end(SF_E_REFUSED, SF_NR_SHARED_FILE, 0, r);
	if (c->handler == SF_H_exit || c->handler == SF_H_exit_group || c->handler == SF_H_exec) {
		if (app.spawn.active)
			return;
		if (c->handler == SF_H_exec && me.slot == 0)
			sf_parked_ends(SF_NOBODY); /* one that cannot be made has them look, and go on */
		if (c->handler == SF_H_exec)
			sf_baton_give();
		else
			sf_domain_leave();
		return;
	}
	const u32 op = nr == NR_futex ? (u32)a[1] & FUTEX_CMD : FUTEX_WAIT;
	if (op == FUTEX_WAKE_OP && sf_shared_in_view(a[4], 4))
		sf_end(SF_E_REFUSED, SF_NR_SHARED_WAIT, 0, r); /* it would store to what the kernel knows by the window */
	if (sf_stops_itself(c, nr, a))
		sf_baton_give();
	if (c->class == SF_DENY || c->class == SF_LOCAL || !waits(nr, a))
		return;
	if (op != FUTEX_WAIT && op != FUTEX_WAIT_BITSET && in_segment(a[0], 4))
		sf_end(SF_E_REFUSED, SF_NR_SHARED_WAIT, 0, r); /* the kernel would store numbers of processes */
	if (!touches(c, nr, a))
		sf_baton_give();
	else if (c->handler == SF_H_open ? me.slot == 0 && opens_at_leisure(nr, a)
					 : nr != NR_sendfile && nr != NR_splice /* their offsets */ && !sends_domain(nr) && !receives(nr))
		sf_end(SF_E_REFUSED, SF_NR_SHARED_WAIT, 0, r);
	/* Else it is kept: sf_domain_ready. */
}

/* Behind a call. */
void sf_domain_spends(void)
{
	me.spent++;
}

/* The process gives the baton for a moment before it goes on. */
void sf_baton_due(void)
{
	if (app.domain)
		me.spent = SHARE;
}

/* On the way back to the program, behind all that comes before it. Who has had the baton for long gives it when all replicas have agreed
 * on that: so they hold the same ticket, or none, wherever they come to differ. Signals that are heard with it may want it again. */
void sf_domain_after(struct sf_regs *r)
{
	while (!me.holds || me.spent >= SHARE)
		sf_baton(r);
	if (unlikely(app.dead_word))
		sf_owner_mark();
}
