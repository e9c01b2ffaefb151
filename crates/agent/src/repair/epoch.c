/* Epoch: compare memory that no event has shown yet, and keep a way back.
 *
 * At an event that the leader chooses, all replicas digest their writable memory and vote on
 * it like on any other event. What they agree on is a good state: the last follower, or each site of a pair, then
 * leaves a copy of itself behind as the snapshot, and the log before it is dropped. A copy of
 * that copy, run against the log since, gives a further vote when two replicas disagree.
 *
 * The digest is a sum over pages, each mixed with its address; pages of zeros count as
 * absent, since whether the kernel has backed an untouched page is not the program's doing.
 * Pages of files count too where the mapping is small (a library's data): a leader that was
 * made anew holds copies of them. In large ones those count that the program has written to.
 *
 * With --check-memory=dirty only pages written since the last epoch are read: the kernel keeps
 * the list (userfaultfd in asynchronous write-protect mode), and the digest of every other page
 * is remembered. The sum is the same as after reading everything, so replicas, re-runs and
 * kernels that can or cannot keep such a list compare with each other. In a pair the list may be kept by write faults
 * (SF_O_FAULTS): a page is closed, and who stores to it first, be it the kernel, waits until the launcher has opened it.
 *
 * Memory that may only be read counts where it is the program's own copy: what the loader has
 * relocated before it closed it, patched code. A snapshot would carry a fault there into every
 * re-run. A leader that was made anew has such copies of whole files; from then on it is left out.
 *
 * Not covered: pages that replicas share with the file (see --private), and the agent's own.
 * See proc_pid_pagemap(5), ioctl PAGEMAP_SCAN in admin-guide/mm/pagemap.rst.
 */
#include "agent.h"
#include "memory/pagemap.h"
#include <asm/errno.h>

#define PAGE 4096ull
#define FILE_ALL (16ull << 20)
#define FORK_PAGES 4096u /* which take 2 ms */

/* Remembered digests, 16 bytes per page of the lower half of the address space: 512 GiB of
 * addresses of which only used parts cost memory. */
#define DIGEST(page) (&((struct sf_hash *)SF_SHADOW)[(page) >> 12])

#define CLOSE_RANGE_UNSHARE 2
#define UFFDIO_API 0xc018aa3full
#define UFFDIO_REGISTER 0xc020aa00ull
#define UFFD_WP_UNPOPULATED (1ull << 13)
#define UFFD_WP_ASYNC (1ull << 15)
#define UFFD_WP_FAULTS 1ull
#define UFFDIO_WRITEPROTECT 0xc018aa06ull

static u8 text[65536];
static struct page_region regions[512];

/* Private memory in huge pages that the newest digest has met, in the replica that leaves
 * snapshots. Not what the program has from hugetlbfs: there may be no second page there. */
#define HUGE (2ull << 20)
static struct {
	u64 from, to;
} huge[64];
static u32 huges;
static int noting;

static void note_huge(u64 from, u64 to)
{
	if (!noting || from % HUGE || to % HUGE)
		return;
	if (huges && huge[huges - 1].to == from)
		huge[huges - 1].to = to;
	else if (huges < sizeof huge / sizeof *huge)
		huge[huges].from = from, huge[huges].to = to, huges++;
}

static void add_pages(struct sf_hash *sum, u64 from, u64 to)
{
	for (u64 p = from; p < to; p += PAGE) {
		if (sf_page_is_zero((u64 *)p))
			continue;
		struct sf_hash h = { p, ~p };
		sf_hash_bytes(&h, (void *)p, PAGE);
		sum->a += h.a;
		sum->b += h.b;
		me.counted++;
	}
}

/* Pages of [from, to) that the program has made its own. */
static void add_range(struct sf_hash *sum, s64 pagemap, u64 from, u64 to)
{
	static int no_scan;
	while (from < to && !no_scan) {
		struct pm_scan_arg a = { .size = sizeof a,
					 .start = from,
					 .end = to,
					 .vec = (u64)regions,
					 .vec_len = sizeof regions / sizeof *regions,
					 .category_inverted = PAGE_IS_FILE | PAGE_IS_PFNZERO,
					 .category_mask = PAGE_IS_FILE | PAGE_IS_PFNZERO,
					 .category_anyof_mask = PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
					 .return_mask = PAGE_IS_PRESENT | PAGE_IS_HUGE };
		s64 n = sys3(NR_ioctl, pagemap, PAGEMAP_SCAN, &a);
		if (n < 0) {
			no_scan = 1; /* before Linux 6.7 */
			break;
		}
		for (s64 i = 0; i < n; i++) {
			add_pages(sum, regions[i].start, regions[i].end);
			if (regions[i].categories & PAGE_IS_HUGE)
				note_huge(regions[i].start, regions[i].end);
		}
		from = n == sizeof regions / sizeof *regions ? a.walk_end : to;
	}
	while (from < to) {
		u64 *entry = (u64 *)regions;
		u64 want = (to - from) / PAGE;
		if (want > sizeof regions / 8)
			want = sizeof regions / 8;
		s64 got = sys4(NR_pread64, pagemap, entry, want * 8, from / PAGE * 8);
		if (got <= 0)
			return;
		for (s64 i = 0; i < got / 8; i++, from += PAGE) {
			/* bit 63 present, 62 swapped, 61 page of a file or shared */
			if ((entry[i] >> 62) && !(entry[i] >> 61 & 1))
				add_pages(sum, from, from + PAGE);
		}
	}
}

/* ---- only what was written ---- */

/* Out of the way of the program's own descriptors, which it expects from 0 up. */
#define HIDDEN_FD 700

enum { TRACKING_UNKNOWN, TRACKING_ON, TRACKING_OFF };

static int by_faults(void)
{
	return (G->options & SF_O_FAULTS) != 0;
}

/* In a copy of this process, which has memory of its own: the list is the other one's. */
void sf_tracking_born(void)
{
	if (me.tracking == TRACKING_ON)
		sys1(NR_close, me.uffd);
	me.tracking = TRACKING_UNKNOWN;
}

static int tracking(void)
{
	struct {
		u64 api, features, ioctls;
	} api = { 0xaa, UFFD_WP_UNPOPULATED | (by_faults() ? UFFD_WP_FAULTS : UFFD_WP_ASYNC), 0 };
	/* A fork inherits neither the list nor the right to an old descriptor of it. In a pair a process has another slot when it leads. */
	if (me.tracking != TRACKING_UNKNOWN && (me.tracked_by == me.slot || (G->options & SF_O_PAIR)))
		return me.tracking == TRACKING_ON;
	me.tracked_by = me.slot;
	me.tracking = TRACKING_OFF;
	/* CLOEXEC and NONBLOCK, or CLOEXEC and UFFD_USER_MODE_ONLY: the kernel's own stores are to wait as well. */
	s64 low = sys1(NR_userfaultfd, by_faults() ? 02004000 : 02000001);
	if (low < 0)
		return 0;
	s64 fd = sys3(NR_fcntl, low, 1030 /* F_DUPFD_CLOEXEC */, HIDDEN_FD);
	sys1(NR_close, low);
	if (fd < 0)
		return 0;
	if (sys3(NR_ioctl, fd, UFFDIO_API, &api) < 0 ||
	    (sys6(NR_mmap, SF_SHADOW, SF_SHADOW_BYTES, 3, 0x2 | 0x20 | 0x4000 | 0x10 /* PRIVATE|ANON|NORESERVE|FIXED */, -1, 0) !=
	     (s64)SF_SHADOW) ||
	    (by_faults() && sf_rpc(SF_RPC_PAIR_FAULTS, (u64)fd, 0, 0, 0, 0) != 0)) {
		sys1(NR_close, fd);
		return 0;
	}
	me.uffd = (s32)fd;
	me.tracking = TRACKING_ON;
	return 1;
}

/* Read what was written in [from, to) since the last time, and protect it again. 0: the kernel
 * cannot say for this mapping. */
static int refresh(s64 pagemap, u64 from, u64 to)
{
	struct {
		u64 start, len, mode, ioctls;
	} reg = { from, to - from, 2 /* WP */, 0 };
	struct {
		u64 start, len, mode;
	} closed = { from, to - from, 1 /* WP */ };
	sys3(NR_ioctl, me.uffd, UFFDIO_REGISTER, &reg); /* once; later it changes nothing */
	while (from < to) {
		struct pm_scan_arg a = { .size = sizeof a,
					 .flags = by_faults() ? 0 : PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC,
					 .start = from,
					 .end = to,
					 .vec = (u64)regions,
					 .vec_len = sizeof regions / sizeof *regions,
					 .category_mask = PAGE_IS_WRITTEN,
					 .return_mask = PAGE_IS_WRITTEN };
		s64 n = sys3(NR_ioctl, pagemap, PAGEMAP_SCAN, &a);
		if (n < 0)
			return 0;
		for (s64 i = 0; i < n; i++) {
			for (u64 p = regions[i].start; p < regions[i].end; p += PAGE) {
				struct sf_hash h = { 0, 0 };
				const u32 counted = me.counted; /* when it is remembered */
				add_pages(&h, p, p + PAGE);
				me.counted = counted;
				*DIGEST(p) = h;
			}
		}
		from = n == sizeof regions / sizeof *regions ? a.walk_end : to;
	}
	return !by_faults() || sys3(NR_ioctl, me.uffd, UFFDIO_WRITEPROTECT, &closed) == 0;
}

/* The remembered digests of the pages that the program has in [from, to). */
static void add_remembered(struct sf_hash *sum, s64 pagemap, u64 from, u64 to)
{
	while (from < to) {
		struct pm_scan_arg a = { .size = sizeof a,
					 .start = from,
					 .end = to,
					 .vec = (u64)regions,
					 .vec_len = sizeof regions / sizeof *regions,
					 .category_inverted = PAGE_IS_PFNZERO,
					 .category_mask = PAGE_IS_PFNZERO,
					 .category_anyof_mask = PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
					 .return_mask = PAGE_IS_PRESENT };
		s64 n = sys3(NR_ioctl, pagemap, PAGEMAP_SCAN, &a);
		if (n < 0)
			return;
		for (s64 i = 0; i < n; i++) {
			for (u64 p = regions[i].start; p < regions[i].end; p += PAGE) {
				sum->a += DIGEST(p)->a;
				sum->b += DIGEST(p)->b;
				me.counted += DIGEST(p)->a != 0;
			}
		}
		from = n == sizeof regions / sizeof *regions ? a.walk_end : to;
	}
}

/* Whether this process owns its files in procfs, which one that has given up rights does not
 * (prctl(2), PR_SET_DUMPABLE). The answer is what it was before. */
s64 sf_readable(s64 yes)
{
	s64 before = sys1(NR_prctl, 3 /* PR_GET_DUMPABLE */);
	if (before != yes)
		sys2(NR_prctl, 4 /* PR_SET_DUMPABLE */, yes == 1); /* 2 cannot be set: its like is 0 */
	return before;
}

static struct {
	int dirty_only;
	struct sf_hash sum;
} full_table;

/* With a copy of the program's descriptor table, in which there is room if two are closed. */
static void hash_in_own_table(void)
{
	u64 limit[2] = { 0, 0 };
	sys4(NR_prlimit64, 0, 7 /* RLIMIT_NOFILE */, 0, limit);
	for (u64 fd = limit[0]; fd-- > 0 && fd + 2 >= limit[0];)
		sys1(NR_close, fd);
	full_table.sum = sf_memory_hash(full_table.dirty_only);
}

/* [vdso], [vvar], [vvar_vclock]: " r-xp offset device inode   name" */
static int of_the_kernel(const u8 *p)
{
	for (; *p != '\n'; p++)
		if (*p == '[')
			return p[1] == 'v';
	return 0;
}

/* A line of /proc/self/maps, as far as it is the program's: its bytes go into the sum. */
static void add_mapping(struct sf_hash *sum, s64 pagemap, const u8 *p, int dirty_only)
{
	u64 from = sf_hex(&p);
	p++;
	u64 to = sf_hex(&p);
	/* " rw?p": readable, writable, private; ours and the kernel's excepted */
	if (p[1] != 'r' || p[4] != 'p' || (from < SF_OWN_END && to > SF_BASE))
		return;
	if (p[2] != 'w') {
		if (!G->remade && !of_the_kernel(p)) {
			noting = 0;
			add_range(sum, pagemap, from, to);
		}
		return;
	}
	p += 6; /* offset, device, inode */
	sf_hex(&p), p++, sf_hex(&p), p++, sf_hex(&p), p++;
	const int anonymous = *p == '0';
	/* A site that has joined has nothing of files: its copies of them are whole. */
	const int small = !anonymous && (to - from <= FILE_ALL || (G->remade && (G->options & SF_O_PAIR)));
	noting = anonymous && me.role == SF_FOLLOWER && me.slot == me.replicas - 1 && (G->options & SF_O_RETAIN) && !dirty_only;
	if (dirty_only && anonymous && refresh(pagemap, from, to)) {
		add_remembered(sum, pagemap, from, to);
		return;
	}
	int view;
	for (u64 end; from < to; from = end) {
		end = sf_shared_part(from, to, &view);
		if (view)
			; /* sf_shared_hash: what differs from the file */
		else if (small)
			add_pages(sum, from, end);
		else
			add_range(sum, pagemap, from, end);
	}
}

static void add_mappings(struct sf_hash *sum, s64 maps, s64 pagemap, int dirty_only)
{
	u64 have = 0;
	for (;;) {
		s64 n = sys3(NR_read, maps, text + have, sizeof text - 1 - have);
		if (n > 0)
			have += (u64)n;
		text[have] = 0;
		u64 line = 0;
		for (u64 at = 0; at < have; at++) {
			if (text[at] != '\n')
				continue;
			add_mapping(sum, pagemap, text + line, dirty_only);
			line = at + 1;
		}
		have -= line;
		memcpy(text, text + line, have);
		if (n <= 0)
			return;
	}
}

static void close_both(s64 one, s64 other)
{
	if (one >= 0)
		sys1(NR_close, one);
	if (other >= 0)
		sys1(NR_close, other);
}

struct sf_hash sf_memory_hash(int dirty_only)
{
	struct sf_hash sum = { 0, 0 };
	huges = 0;
	me.counted = 0;
	if (unlikely(app.blind)) { /* what is at /proc there, if anything, is the program's */
		sf_hash_bytes(&sum, &app, sizeof app);
		return sum;
	}
	dirty_only = dirty_only && me.role != SF_RERUN && tracking();
	s64 maps = sys3(NR_open, "/proc/self/maps", 0, 0);
	s64 pagemap = sys3(NR_open, "/proc/self/pagemap", 0, 0);
	/* The program has used its table up, or all but what the other replicas need now. */
	static u32 inside;
	if (unlikely(maps == -EMFILE || pagemap == -EMFILE) && !inside) {
		close_both(maps, pagemap);
		inside = 1;
		full_table.dirty_only = dirty_only;
		full_table.sum = sum;
		sf_with_own_table(hash_in_own_table);
		inside = 0;
		return full_table.sum;
	}
	if (pagemap == -EACCES) {
		s64 before = sf_readable(1);
		pagemap = sys3(NR_open, "/proc/self/pagemap", 0, 0);
		sf_readable(before);
	}
	if (maps >= 0 && pagemap >= 0)
		add_mappings(&sum, maps, pagemap, dirty_only);
	close_both(maps, pagemap);
	sf_shared_hash(&sum);
	/* What the agent keeps for the program is the program's state too. */
	sf_hash_bytes(&sum, &app, sizeof app);
	return sum;
}

/* The last follower; in a pair each site, so that both can run the past again. */
static int leaves_snapshots(void)
{
	if (!(G->options & SF_O_RETAIN) || me.role > SF_FOLLOWER)
		return 0;
	return (G->options & SF_O_PAIR) || (me.role == SF_FOLLOWER && me.slot == me.replicas - 1);
}

/* What a memory check with its snapshot is going to cost, in ticks: at most the copy of each
 * page that the program has of its own. */
static u64 price(void)
{
	u8 line[128]; /* size, resident and shared pages: proc_pid_statm(5) */
	s64 fd = sys3(NR_open, "/proc/self/statm", 0, 0);
	if (fd < 0)
		return 0;
	s64 n = sys3(NR_read, fd, line, sizeof line - 1);
	sys1(NR_close, fd);
	line[n > 0 ? n : 0] = 0;
	u64 pages[3] = { 0, 0, 0 };
	const u8 *p = line;
	for (int i = 0; i < 3; i++, p++)
		for (; *p >= '0' && *p <= '9'; p++)
			pages[i] = pages[i] * 10 + (*p - '0');
	return pages[1] > pages[2] ? (pages[1] - pages[2]) * G->copy_tsc : 0;
}

/* Where a look at the clock is two calls, one of so many events takes it. */
#define TRAPPED_LOOKS 16

static u64 gap_for(u64 cost)
{
	u64 gap = cost * 1000 / (G->epoch_permille ? G->epoch_permille : 10);
	return gap > G->epoch_tsc ? gap : G->epoch_tsc;
}

/* A program that hardly runs is checked more rarely, where nobody has asked for checks: what a re-run would have to do
 * again is little, and the check, its copy of memory and of huge pages are most of what such a program costs. */
#define IDLE_SHARE 16u /* less than this part of the time */
#define IDLE_GAPS 8u /* so much more rarely at most */
#define SLICE_NS 10000000ull /* of G->slice_tsc */

static u64 used_ns(void)
{
	s64 t[2] = { 0, 0 };
	return sys2(NR_clock_gettime, 2 /* CLOCK_PROCESS_CPUTIME_ID */, t) < 0 ? 0 : (u64)t[0] * 1000000000 + (u64)t[1];
}

static int idles(u64 gap)
{
	if (me.epoch_late >= IDLE_GAPS - 1 || (G->options & (SF_O_CHECK_DIRTY | SF_O_CHECK_FULL | SF_O_PAIR)))
		return 0;
	u64 used = used_ns() - me.last_epoch_ns, limit = gap / IDLE_SHARE;
	if (used / SLICE_NS * G->slice_tsc + used % SLICE_NS * G->slice_tsc / SLICE_NS > limit)
		return 0;
	me.epoch_late++;
	me.epoch_gap += me.epoch_gap / me.epoch_late; /* the first gap once more */
	return 1;
}

/* Leader: is it time? Also after a call that a re-run could not repeat, or one that has brought much. */
int sf_epoch_due(u64 brings)
{
	static u32 looks;
	if (likely(!G->epoch_tsc))
		return 0;
	if (unlikely(app.spawn.active || app.domain))
		return 0;
	/* The snapshot went with the follower that held it: until there is another, two replicas that
	 * differ again are at their end, and a bad core makes them differ again at once. */
	if ((G->options & SF_O_RETAIN) && unlikely(!G->snapshot_seq))
		return 1;
	/* What is retained has outgrown its room. */
	if ((G->options & SF_O_RETAIN) && (me.out + brings > SF_RETAIN_SOFT || me.next - me.base > SF_RETAIN_EVENTS))
		return 1;
	if (unlikely(me.tsc_traps) && looks++ % TRAPPED_LOOKS)
		return 0;
	u64 gap = sf_true_tsc() - me.last_epoch_tsc;
	if (gap > me.epoch_gap) {
		/* The program may have grown since the check that set the gap. */
		u64 longer = G->options & SF_O_RETAIN ? gap_for(price()) : 0;
		if (gap <= longer)
			me.epoch_gap = longer;
		else if (!idles(gap))
			return 1;
	}
	/* No way back (the log had to be cut): mend that soon. */
	return G->snapshot_broken && gap > G->epoch_tsc / 16;
}

struct clone_args {
	u64 flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

static s64 copy_self(void)
{
	struct clone_args ca = { .flags = 0x400 /* CLONE_FILES */ };
	u64 call[7] = { NR_clone3, (u64)&ca, sizeof ca, 0, 0, 0, 0 };
	const s64 parent = sys0(NR_getpid);
	s64 pid = sf_raw(call);
	if (pid == 0) {
		u64 die[7] = { NR_prctl, 1, 9, 0, 0, 0, 0 }, whose[7] = { NR_getppid }, leave[7] = { NR_exit_group };
		sf_raw(die);
		/* Who has died since could not take this one with it, and what that held open would stay open. */
		if (sf_raw(whose) != parent)
			sf_raw(leave);
	}
	return pid;
}

/* The snapshot and the follower that left it share what neither has written since: a cell that
 * goes wrong there is wrong for both, and for every copy of it. What was agreed on then tells. */
static int still_agreed(void)
{
	const u32 pages = app.pages;
	if (!me.snapshot_known || me.snapshot_remade != G->remade)
		return 1;
	app.own_events--;
	app.pages = me.pages_then;
	struct sf_hash now = sf_memory_hash(0);
	app.pages = pages;
	app.own_events++;
	return now.a == me.snapshot.a && now.b == me.snapshot.b;
}

/* The snapshot sleeps here; copies of it return from here as re-runs. */
static void sleep_as_snapshot(u32 slot)
{
	/* How long it outlives a launcher at most, where only looking tells it. */
	static const s64 limit[2] = { 0, 200000000 };
	struct sf_replica *own = &G->slot[slot];
	s64 parent = sys0(NR_getppid);
	me.role = SF_SNAPSHOT;
	store(&own->phase, SF_P_PAUSED);
	for (;;) {
		u32 bell = load(&own->bell);
		u64 seq = load(&own->cmd_seq);
		if (seq == own->cmd_ack) {
			sys4(NR_futex, &own->bell, 0, bell, limit);
			/* A parent that has given up rights cannot take this one with it. */
			if (sys0(NR_getppid) != parent)
				sys1(NR_exit_group, 0);
			continue;
		}
		if (own->cmd == SF_C_EXIT) {
			store(&own->cmd_ack, seq); /* the next snapshot in this slot is not meant */
			sys1(NR_exit_group, 0);
		}
		while (sys4(NR_wait4, -1, 0, 0x80000001u /* __WCLONE|WNOHANG */, 0) > 0)
			; /* earlier copies */
		if (own->cmd == SF_C_RERUN) {
			u64 core = own->cmd_arg2;
			u32 as = (u32)own->cmd_arg;
			s64 pid = copy_self();
			if (pid == 0) {
				u8 mask[256];
				memset(mask, 0, sizeof mask);
				if (core < sizeof mask * 8) {
					mask[core / 8] = (u8)(1u << (core % 8));
					u64 pin[7] = { NR_sched_setaffinity, 0, sizeof mask, (u64)mask, 0, 0, 0 };
					sf_raw(pin);
				}
				me.slot = as;
				me.role = SF_RERUN;
				me.together_until = 0;
				me.pending_n = me.reset_pending = me.made = 0; /* a leader's, of which only a pair's are copied */
				me.parent = (s32)sys0(NR_getppid);
				G->slot[as].next = me.next;
				G->slot[as].verdict_seq = 0;
				G->slot[as].cmd_ack = G->slot[as].cmd_seq; /* an earlier re-run was told to end */
				sf_arm();
				sf_shared_undo();
				if (!still_agreed())
					sf_stand(); /* does not vote, and waits to be told to go */
				store(&G->slot[as].phase, SF_P_RUNNING);
				return;
			}
			own->cmd_ret = pid;
		}
		store(&own->cmd_ack, seq);
		__atomic_fetch_add(&G->launcher_bell, 1, __ATOMIC_SEQ_CST);
		sys3(NR_futex, &G->launcher_bell, 1, 1);
	}
}

/* After an agreed epoch, on the last follower: leave a snapshot behind. In a pair it has no descriptors, which a re-run from the log
 * does not need: a pipe, a lock or a port goes with the process that had it. */
void sf_snapshot(void)
{
	u32 slot = me.replicas; /* the first slot beyond the replicas */
	s32 old = me.snapshot_pid;
	if (old > 0) {
		/* Not by a signal: the program may have given up the right to send it one. */
		struct sf_replica *its = &G->slot[slot];
		its->cmd = SF_C_EXIT;
		store(&its->cmd_seq, its->cmd_seq + 1);
		sf_wake(slot);
		while (sys4(NR_wait4, old, 0, 0x80000000u /* __WCLONE: no exit signal */, 0) == -EINTR)
			; /* a signal of the program's, where a leader has left it */
		store(&its->cmd_ack, its->cmd_seq); /* one that had ended before has not heard it, and the next one is not meant */
	}
	u64 base = me.base;
	me.base = me.next;
	s64 pid = copy_self();
	if (pid == 0) {
		me.snapshot_pid = 0;
		sf_flip_disarm();
		sf_arm();
		if (G->options & SF_O_PAIR)
			sys3(NR_close_range, 0, ~0u, CLOSE_RANGE_UNSHARE);
		sleep_as_snapshot(slot);
		return;
	}
	me.base = base;
	me.snapshot_pid = pid > 0 ? (s32)pid : 0;
}

/* Before the first event: the state that all have in common. 1: in a re-run from there. */
int sf_first_snapshot(void)
{
	if (!leaves_snapshots() || app.domain)
		return 0;
	sf_snapshot();
	if (me.role == SF_RERUN)
		return 1;
	G->snapshot_seq = me.next;
	G->snapshot_broken = 0;
	return 0;
}

/* A huge page that two processes share is split at the first store: 512 faults and copies, and
 * small pages from then on. So the replica that goes on takes its copies at once: each chunk
 * aside, dropped, and back into a huge page of its own. 64 MiB took 11 to 16 ms this way, and
 * 69 to 91 ms by faults. The snapshot keeps the old pages. Copies may take a quarter of the
 * memory that is free; what is left is copied where it is written, by faults. */
static void keep_huge(void)
{
	u64 info[14]; /* struct sysinfo, sysinfo(2): freeram is word 5, in units of mem_unit */
	if (!huges || me.snapshot_pid <= 0 || sys1(NR_sysinfo, info) < 0)
		return;
	u64 room = info[5] * ((u32 *)info)[26] / 4 / HUGE;
	/* Where the list of written pages would be: with that list nothing is noted. */
	u64 *aside = (u64 *)SF_SHADOW;
	if (sys6(NR_mmap, (u64)aside, HUGE, 3, 0x2 | 0x20 | 0x100000 /* PRIVATE|ANON|FIXED_NOREPLACE */, -1, 0) != (s64)aside)
		return;
	sys3(NR_madvise, aside, HUGE, 14 /* MADV_HUGEPAGE */);
	for (u32 i = 0; i < huges; i++) {
		for (u64 at = huge[i].from; at < huge[i].to && room; at += HUGE, room--) {
			memcpy(aside, (void *)at, HUGE);
			if (sys3(NR_madvise, at, HUGE, 4 /* MADV_DONTNEED */) < 0)
				break; /* locked in memory: nothing was dropped */
			memcpy((void *)at, aside, HUGE);
		}
	}
	sys2(NR_munmap, aside, HUGE);
}

static u64 page_faults(void)
{
	u64 usage[18]; /* struct rusage, getrusage(2); ru_minflt is its ninth word */
	return sys2(NR_getrusage, 0, usage) < 0 ? 0 : usage[8];
}

static enum sf_claim claim_epoch(struct sf_event *e, struct sf_regs *r, void *arg)
{
	(void)r, (void)arg;
	me.own_event = 1;
	*e = (struct sf_event){ .seq = me.next, .nr = 0, .kind = SF_K_CHECK, .lockstep = 1 };
	e->bytes = sf_memory_hash(G->options & SF_O_CHECK_DIRTY);
	return SF_CLAIMED;
}

static const struct sf_result *act_epoch(struct sf_event *e, void *arg)
{
	(void)arg;
	me.reset_pending = 1;
	return sf_result_flags(e, SF_R_RESET | SF_R_BARRIER | (me.heard ? SF_R_MORE : 0));
}

/* The copy is taken before this replica says it is done: the leader stands still until the new log has its snapshot. */
static int done_epoch(struct sf_event *e, const struct sf_result *res, void *arg)
{
	(void)res, (void)arg;
	me.next = e->seq + 1;
	if (G->options & SF_O_PAIR) {
		me.pages_then = app.pages;
		app.pages = me.counted;
	}
	if (!leaves_snapshots())
		return 0;
	me.snapshot = e->bytes;
	me.snapshot_remade = G->remade;
	me.snapshot_known = !app.map_files; /* files change: what they hold was agreed on then */
	app.own_events++; /* here for the copy; counted by the driver for this replica */
	sf_snapshot();
	if (me.role == SF_RERUN) {
		me.own_event = 0;
		return 1;
	}
	app.own_events--;
	keep_huge();
	me.snapshot_faults = page_faults();
	G->snapshot_broken = 0;
	G->undo_n = 0;
	G->snapshot_seq = me.next;
	return 0;
}

static const struct sf_step check = { claim_epoch, NULL, act_epoch, NULL, done_epoch, 0 };

static s32 check_memory(struct sf_regs *r)
{
	u64 start = sf_true_tsc();
	struct sf_event e;
	if (leaves_snapshots())
		G->copied = me.snapshot_faults ? page_faults() - me.snapshot_faults : 0;
	s32 flags = sf_event(&e, r, &check, NULL);
	if (me.slot == 0) {
		/* An epoch may take epoch_permille of the time: the gap follows what it cost, and
		 * what the copies since the last one did. */
		u64 now = sf_true_tsc(), cost = now - start + G->copied * G->copy_tsc;
		me.last_epoch_tsc = now;
		me.epoch_gap = gap_for(cost);
		me.epoch_late = 0;
		me.last_epoch_ns = used_ns();
		me.heard = 0;
	}
	return flags;
}

/* The event after a result marked SF_R_EPOCH. */
void sf_epoch(struct sf_regs *r)
{
	me.doing = SF_D_EPOCH;
	if (me.heard)
		G->snapshot_broken = 1; /* no re-run would come to this event by itself; from the next one on there is a new log */
	if (unlikely(check_memory(r) & SF_R_MORE))
		sf_more_signals(r);
}

/* Before a fork, in a pair: an error that no check has found would be in the child as well, and in all that both run again. What is
 * large is checked by the clock alone. 1: start the call again. */
int sf_epoch_before_fork(struct sf_regs *r)
{
	if (!(G->options & SF_O_PAIR) || !(G->options & SF_O_RETAIN) || app.domain || me.ready == me.next || app.pages > FORK_PAGES)
		return 0;
	check_memory(r);
	me.ready = me.next;
	return 1;
}
