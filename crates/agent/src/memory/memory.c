/* Memory: calls that every replica executes on its own address space, at equal addresses.
 *
 * The leader acts first and its result is in the log; followers repeat the call with the
 * leader's address forced (MAP_FIXED_NOREPLACE, MREMAP_FIXED), so layouts stay equal and
 * pointers can be compared verbatim. New executable file mappings are patched before any
 * replica can run them: the launcher plans, the plan travels in the log, each applies it.
 *
 * Memory in huge pages of the kernel's pool (MAP_HUGETLB) is ordinary memory at such an address: the pool has what the program
 * needs, not N times that, and nothing for copies of a repair.
 *
 * Memory that is MAP_SHARED and anonymous becomes private until there is somebody to share it
 * with: domain.c. Files that are mapped shared: shared.c. The kernel's break may lie ahead of the program's.
 *
 * Not covered: a store between the two breaks, which bare would be a SIGSEGV (docs/reference/limits-run.md).
 */
#include "agent.h"

#define EPERM 1
#define ENOMEM 12
#define EINVAL 22
#define PROT_WRITE 2
#define PROT_EXEC 4
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_SHARED_VALIDATE 3
#define MAP_DROPPABLE 8
#define MAP_TYPE 0xf
#define MAP_FIXED 0x10
#define MAP_ANONYMOUS 0x20
#define MAP_HUGETLB 0x40000
#define MAP_HUGE_SHIFT 26 /* behind it, in six bits: the logarithm of the page's size, or 0 */
#define HUGE_LOG 21
#define MAP_FIXED_NOREPLACE 0x100000
#define MREMAP_MAYMOVE 1
#define MREMAP_FIXED 2
#define MADV_HUGEPAGE 14

/* Romain asks for huge pages from 1 MB up (paper, footnote 3). */
#define HUGE_MIN (1ull << 20)

static s64 raw(u64 nr, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
	return sf_sys(nr, a, b, c, d, e, f);
}

static void want_huge(u64 addr, u64 len)
{
	if ((G->options & SF_O_HUGE) && len >= HUGE_MIN)
		raw(NR_madvise, addr, len, MADV_HUGEPAGE, 0, 0, 0);
}

/* The agent's and the log's own ranges are not the program's to change. */
static int touches_agent(u64 addr, u64 len)
{
	return addr < SF_OWN_END + SF_THREADS_BYTES && addr + len > SF_BASE && len;
}

/* Where cpuid cannot be let fault, code that no file holds reads the number of the core it runs on, unseen, and HotSpot
 * keeps it. A compiler asks before it compiles: replicas stand on one core for as many calls behind such a mapping
 * (HotSpot has asked after nine). */
#define TOGETHER_CALLS 64
/* Mappings that begin such a time: HotSpot's is its third. Later ones hold what was compiled, and cores are worth more. */
#define TOGETHER_TIMES 16

static u8 own_cores[256];
static u32 cpuid_runs; /* unseen: nothing lets it fault */

static void stand_together(void)
{
	static u32 times;
	u32 byte = 0;
	while (byte < sizeof own_cores - 1 && !G->allowed[byte])
		byte++;
	if (sf_alone() || !G->allowed[byte] || times == TOGETHER_TIMES)
		return;
	if (!me.together_until && sf_failed(sf_sys(NR_sched_getaffinity, 0, sizeof own_cores, (u64)own_cores, 0, 0, 0)))
		return;
	u8 one[sizeof own_cores];
	memset(one, 0, sizeof one);
	one[byte] = G->allowed[byte] & (u8)-G->allowed[byte];
	if (sf_failed(sf_sys(NR_sched_setaffinity, 0, sizeof one, (u64)one, 0, 0, 0)))
		return;
	times++;
	me.together_until = me.next + TOGETHER_CALLS;
}

void sf_stand_apart(void)
{
	me.together_until = 0;
	sf_sys(NR_sched_setaffinity, 0, sizeof own_cores, (u64)own_cores, 0, 0, 0);
}

/* Where an instruction may read the clock that nobody could patch: let rdtsc fault from now on, here and in the
 * kernel's vDSO, so the leader's clocks become calls (PR_SET_TSC); and cpuid, where the processor can. */
void sf_clock_traps(void)
{
	if (me.tsc_traps)
		return;
	sf_boot.vdso_ok = 0;
	me.fake_tsc = sf_tsc();
	me.tsc_traps = 1;
	sf_code_traps(1);
}

/* Code that no file holds cannot be searched before it runs. */
static void code_appears(void)
{
	sf_clock_traps();
	if (cpuid_runs)
		stand_together();
}

void sf_code_traps(int yes)
{
	sf_tsc_faults(yes);
	sf_cpuid_faults(yes);
}

/* ENODEV where the processor has no such switch: cpuid then runs unseen (arch_prctl(2)). */
void sf_cpuid_faults(int yes)
{
	cpuid_runs = sf_failed(sf_sys(NR_arch_prctl, 0x1012 /* ARCH_CPUID_SET */, !yes, 0, 0, 0, 0));
}

void sf_tsc_faults(int yes)
{
	sf_sys(NR_prctl, 26 /* PR_SET_TSC */, yes ? 2 /* PR_TSC_SIGSEGV */ : 1 /* PR_TSC_ENABLE */, 0, 0, 0, 0);
}

enum {
	MADV_DONTNEED = 4,
	MADV_FREE = 8,
	MADV_DONTFORK = 10,
	MADV_DOFORK,
	MADV_MERGEABLE,
	MADV_UNMERGEABLE,
	MADV_WIPEONFORK = 18,
	MADV_KEEPONFORK,
	MADV_GUARD_INSTALL = 102,
	MADV_GUARD_REMOVE
};

/* A repair copies a replica by forking it, and the copy has to have all of it: advice to leave a part out is given, for its
 * errno, and taken back. A child that is to find zeros finds none then, which is said: as a kernel before 4.14.
 * Merging would put the replicas on one frame again: as a kernel without CONFIG_KSM. Guard pages
 * cannot be told from pages in swap, which are read to be compared: as a kernel before 6.13.
 * What may be dropped at any time is dropped now, or it would go from one replica and not from another. */
static s64 advise(const u64 a[6])
{
	u32 advice = (u32)a[2];
	switch (advice) {
	case MADV_MERGEABLE:
	case MADV_UNMERGEABLE:
	case MADV_WIPEONFORK:
	case MADV_KEEPONFORK:
	case MADV_GUARD_INSTALL:
	case MADV_GUARD_REMOVE: return -EINVAL;
	}
	s64 r = raw(NR_madvise, a[0], a[1], advice, 0, 0, 0);
	if (advice == MADV_FREE && (r == 0 || r == -ENOMEM /* there are gaps */))
		raw(NR_madvise, a[0], a[1], MADV_DONTNEED, 0, 0, 0);
	if (advice == MADV_DONTFORK)
		raw(NR_madvise, a[0], a[1], MADV_DOFORK, 0, 0, 0);
	return r;
}

#define MCL_CURRENT 1u
#define MCL_FUTURE 2u
#define MCL_ONFAULT 4u
#define MLOCK_ONFAULT 1
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23

/* Lock what is the program's, mapping by mapping: the kernel's own call would lock and fill the
 * log as well, which is 260 MiB. */
static s64 lock_current(u32 flags)
{
	static char text[8192];
	s64 fd = raw(2 /* open */, (u64) "/proc/self/maps", 0, 0, 0, 0, 0), r = 0;
	u64 have = 0;
	if (sf_failed(fd))
		return fd;
	for (;;) {
		s64 n = raw(0, (u64)fd, (u64)text + have, sizeof text - 1 - have, 0, 0, 0);
		if (n > 0)
			have += (u64)n;
		text[have] = 0;
		u64 line = 0;
		for (u64 at = 0; at < have; at++) {
			if (text[at] != '\n')
				continue;
			const u8 *p = (const u8 *)text + line;
			u64 from = sf_hex(&p);
			p++;
			u64 to = sf_hex(&p);
			line = at + 1;
			if ((from < SF_OWN_END && to > SF_BASE) || from >> 47)
				continue;
			s64 locked = raw(325 /* mlock2 */, from, to - from, MLOCK_ONFAULT, 0, 0, 0);
			if (locked < 0 && locked != -EINVAL)
				r = locked;
			/* " rw": what may be written is written to, so that it has a page of its own. */
			if (!locked && !(flags & MCL_ONFAULT) && p[1] == 'r')
				raw(NR_madvise, from, to - from, p[2] == 'w' ? MADV_POPULATE_WRITE : MADV_POPULATE_READ, 0, 0, 0);
		}
		have -= line;
		memcpy(text, text + line, have);
		if (n <= 0)
			break;
	}
	raw(3, (u64)fd, 0, 0, 0, 0, 0);
	return r;
}

s64 sf_mlockall(u64 flags)
{
	u32 f = (u32)flags;
	s64 r = 0;
	if (!f || (f & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) || f == MCL_ONFAULT)
		return -EINVAL;
	if (f & MCL_FUTURE)
		r = raw(151 /* mlockall */, f & ~MCL_CURRENT, 0, 0, 0, 0, 0);
	if (!r && (f & MCL_CURRENT))
		r = app.blind ? -EPERM : lock_current(f); /* the leader's mappings cannot be told any more */
	if (r)
		raw(152 /* munlockall */, 0, 0, 0, 0, 0, 0);
	return r;
}

/* The kernel's break runs ahead of the program's to the end of a huge page. malloc moves the break by
 * 132 KiB at a time and back again, and a page that the break lies in is never backed by a huge one.
 * What lies between the two reads as zeros, as new memory does. Bytes behind the break in its last
 * page of 4 KiB are left alone, as the kernel leaves them. */
#define HUGE_PAGE (2ull << 20)
/* Most programs stay below this (malloc's first step is 132 KiB): they would only pay for clearing 2 MiB. */
#define AHEAD_MIN (256ull << 10)

static u64 heap_end; /* the kernel's break while it is ahead, otherwise 0 */

static u64 up_memory(u64 a, u64 to)
{
	return (a + to - 1) & -to;
}

static u64 kernel_break(u64 to)
{
	return (u64)raw(NR_brk, to, 0, 0, 0, 0, 0);
}

static u64 ahead_of(u64 to)
{
	int small = to <= up_memory(app.brk_start, HUGE_PAGE) || to - app.brk_start < AHEAD_MIN;
	return !(G->options & SF_O_HUGE) || app.heap_plain || small ? to : up_memory(to, HUGE_PAGE);
}

static u64 grow(u64 from, u64 to, u64 want)
{
	u64 end = heap_end ? heap_end : from;
	if (to <= end)
		return to;
	if (want > to && kernel_break(want) == want) {
		u64 huge = up_memory(app.brk_start, HUGE_PAGE);
		raw(NR_madvise, huge, want - huge, MADV_HUGEPAGE, 0, 0, 0);
		heap_end = want;
		return to;
	}
	/* A limit, or something in the way: then as bare, to the byte. */
	if (kernel_break(to) != to)
		return from;
	heap_end = 0;
	return to;
}

static u64 shrink(u64 from, u64 to, u64 want)
{
	u64 end = heap_end ? heap_end : from;
	if (want < end && kernel_break(want) == want)
		end = want;
	u64 low = up_memory(to, 4096), high = up_memory(from, 4096) < end ? up_memory(from, 4096) : end;
	if (low < high)
		memset((void *)low, 0, high - low);
	heap_end = end > to ? end : 0;
	return to;
}

/* The program's new break, or the old one if it cannot be moved. */
static u64 move_break(u64 to)
{
	u64 from = app.brk_now;
	if (to < app.brk_start || to == from)
		return from;
	return to > from ? grow(from, to, ahead_of(to)) : shrink(from, to, ahead_of(to));
}

static int in_heap(u64 addr, u64 len)
{
	u64 end = heap_end > app.brk_now ? heap_end : app.brk_now;
	return addr < end && addr + len > app.brk_start;
}

/* Before a call that maps, closes or moves a part of the heap, or what lies behind the program's break, where
 * bare there is nothing: from then on the kernel's break is the program's. In every replica, also
 * where the leader's call failed. */
void sf_heap_settle(u32 nr, const u64 a[6])
{
	int touched = 0;
	switch (nr) {
	case NR_mmap: touched = a[0] && in_heap(a[0], a[1]); break;
	case NR_mremap: touched = in_heap(a[0], a[1]) || ((a[3] & MREMAP_FIXED) && in_heap(a[4], a[2])); break;
	case NR_munmap:
	case NR_mprotect:
	case NR_pkey_mprotect: touched = in_heap(a[0], a[1]); break;
	}
	if (likely(!touched) || app.heap_plain)
		return;
	app.heap_plain = 1;
	if (heap_end)
		kernel_break(app.brk_now);
	heap_end = 0;
}

/* In a leader that was made anew: the winner's break, and where its heap ends. */
void sf_heap_is(u64 brk, u64 end)
{
	heap_end = end > up_memory(brk, 4096) ? end : 0;
}

/* What mmap(2) takes beside MAP_PRIVATE. The kernel is asked with anything else as it is, and refuses. */
static int becomes_private(u64 flags)
{
	const u64 type = flags & MAP_TYPE;
	return type == MAP_SHARED || type == (flags & MAP_ANONYMOUS ? MAP_DROPPABLE : MAP_SHARED_VALIDATE);
}

/* Breakpoints in code that is no more. */
static void forget_traps(u64 from, u64 len)
{
	u32 kept = 0;
	for (u32 i = 0; i < sf_traps.n; i++)
		if (sf_traps.at[i].addr - from >= len)
			sf_traps.at[kept++] = sf_traps.at[i];
	sf_traps.n = kept;
}

static s64 memory_call(u32 nr, const u64 a[6], s64 forced)
{
	u64 flags;
	s64 r;
	switch (nr) {
	case NR_mmap: {
		int ours = touches_agent(a[0], a[1]), fixed = (a[3] & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0;
		if (ours && fixed)
			return -ENOMEM;
		flags = a[3];
		if (becomes_private(flags))
			flags = (flags & ~(u64)MAP_TYPE & ~0x80000ull /* MAP_SYNC */) | MAP_PRIVATE;
		if (forced && !(flags & MAP_FIXED))
			r = raw(NR_mmap, (u64)forced, a[1], a[2], flags | MAP_FIXED_NOREPLACE, a[4], a[5]);
		else
			r = raw(NR_mmap, ours ? 0 : a[0], a[1], a[2], flags, a[4], a[5]);
		if (!sf_failed(r) && (flags & MAP_FIXED))
			forget_traps((u64)r, up_memory(a[1], 4096));
		if (!sf_failed(r) && touches_agent((u64)r, a[1])) {
			raw(NR_munmap, (u64)r, a[1], 0, 0, 0, 0);
			return -ENOMEM;
		}
		if (!sf_failed(r) && !(flags & MAP_ANONYMOUS) && !(a[2] & PROT_EXEC))
			sf_privatise((u64)r, ((u64)r + a[1] + 4095) & ~4095ull, a[2], 1);
		if (!sf_failed(r) && (flags & MAP_ANONYMOUS)) {
			want_huge((u64)r, a[1]);
			if (a[2] & PROT_EXEC)
				code_appears();
		}
		return r;
	}
	case NR_mremap:
		if (touches_agent(a[0], a[1]) || ((a[3] & MREMAP_FIXED) && touches_agent(a[4], a[2])))
			return -EINVAL;
		if (forced && !(a[3] & MREMAP_FIXED) && (u64)forced != a[0])
			r = raw(NR_mremap, a[0], a[1], a[2], a[3] | MREMAP_MAYMOVE | MREMAP_FIXED, (u64)forced, 0);
		else
			r = raw(NR_mremap, a[0], a[1], a[2], forced ? a[3] & ~(u64)(a[3] & MREMAP_FIXED ? 0 : MREMAP_MAYMOVE) : a[3], a[4],
				0);
		if (!sf_failed(r))
			want_huge((u64)r, a[2]);
		return r;
	case NR_brk: app.brk_now = move_break(a[0]); return (s64)app.brk_now;
	default:
		if (touches_agent(a[0], a[1]))
			return -EINVAL;
		if (nr == NR_madvise)
			return advise(a);
		if (nr == NR_mprotect && (a[2] & PROT_EXEC))
			code_appears();
		r = raw(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
		if (nr == NR_munmap && r == 0)
			forget_traps(a[0], up_memory(a[1], 4096));
		return r;
	}
}

/* Whether the pool has such pages is for the kernel to say, with the errno of a bare run; and where they would lie. */
static s64 ask_pool(const u64 a[6], u64 size)
{
	const u64 flags = a[3] & ~(u64)(MAP_FIXED | MAP_FIXED_NOREPLACE);
	const s64 r = raw(NR_mmap, flags == a[3] ? a[0] : 0, a[1], a[2], flags, a[4], a[5]);
	if (!sf_failed(r))
		raw(NR_munmap, (u64)r, up_memory(a[1], size), 0, 0, 0, 0);
	return r;
}

/* Every replica: what such a mapping becomes. It is as long as its pages. Leader: where, or an errno. */
static s64 becomes_ordinary(u64 a[6], s64 forced)
{
	const u64 log = a[3] >> MAP_HUGE_SHIFT & 63, size = 1ull << (log ? log : HUGE_LOG);
	const int fixed = (a[3] & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0;
	if (!forced) {
		const s64 r = fixed && (a[0] & (size - 1)) ? -EINVAL : ask_pool(a, size);
		if (sf_failed(r))
			return r;
		forced = fixed ? 0 : r;
	}
	a[1] = up_memory(a[1], size);
	a[3] &= ~((u64)MAP_HUGETLB | 63ull << MAP_HUGE_SHIFT);
	return forced;
}

/* One call on this replica. `forced`: the leader's result, or 0 on the leader. */
s64 sf_memory_call(u32 nr, const u64 asked[6], s64 forced)
{
	s64 r = SF_SHARED_PLAIN;
	u64 of_pool[6];
	const u64 *a = asked;
	if (unlikely(nr == NR_mmap && (asked[3] & MAP_HUGETLB) && (asked[3] & MAP_ANONYMOUS))) {
		memcpy(of_pool, asked, sizeof of_pool);
		forced = becomes_ordinary(of_pool, forced);
		if (sf_failed(forced))
			return forced;
		a = of_pool;
	}
	me.stack_from = me.stack_to = 0; /* log.c, digest_guarded */
	if (unlikely(nr == NR_shmat || nr == NR_shmdt))
		return nr == NR_shmat ? sf_domain_attach(a, forced) : sf_domain_detach(a);
	int fixed = nr == NR_mmap && (a[3] & (MAP_FIXED | MAP_FIXED_NOREPLACE)) && touches_agent(a[0], a[1]);
	if (unlikely(G->options & SF_O_PAIR) && unlikely(sf_pair_maps(nr, a)) && !fixed) {
		r = raw(NR_mmap, forced ? (u64)forced : a[0], a[1], a[2], forced && !(a[3] & MAP_FIXED) ? a[3] | MAP_FIXED_NOREPLACE : a[3],
			a[4], a[5]);
		if (!sf_failed(r))
			sf_domain_named(a, r);
		return r;
	}
	if (unlikely(nr == NR_mmap && (a[3] & MAP_SHARED) && !(a[3] & MAP_ANONYMOUS) && !fixed))
		r = sf_shared_mmap(a, forced);
	if (r != SF_SHARED_PLAIN) {
		if ((app.segments || sf_shared_is_segment(NULL)) && !sf_failed(r))
			sf_domain_changed(nr, a, r);
		return r;
	}
	const int zero = unlikely(nr == NR_mmap && (a[3] & MAP_SHARED) && !(a[3] & MAP_ANONYMOUS) && !fixed) && sf_shared_is_zero();
	if (unlikely(app.maps) && me.slot == 0 && (r = sf_shared_allows(nr, a)) < 0)
		return r;
	r = memory_call(nr, a, forced);
	if (likely(!sf_failed(r)) && unlikely(app.segments || (nr == NR_mmap && (a[3] & MAP_SHARED) && (a[3] & MAP_ANONYMOUS))))
		sf_domain_changed(nr, a, r);
	if (unlikely(app.maps) && !sf_failed(r))
		r = sf_shared_changed(nr, a, r);
	if (unlikely(zero) && !sf_failed(r))
		sf_shared_zeros(a, (u64)r);
	return r;
}

/* A plan, as crates/replica/src/patching.rs writes it: little-endian words
 *   region address | its protection, region bytes, arena address, arena bytes, arena data bytes, writes,
 *   traps | PLAN_CLOCKS, then bytes of the plan << 32 | CRC32C of them, with 0 for this word
 *   arena data, padded to 8
 *   then per trap: address, descriptor | length << 32
 *   then per write: address, bytes, the bytes padded to 8 */
#define PLAN_CLOCKS (1ull << 32) /* something in the region may read the clock and keeps its instruction */

static u64 plan_sum(const u8 *plan, u32 len)
{
	u64 c = 0;
	for (u32 at = 0; at < len; at += 8) {
		u64 w;
		__builtin_memcpy(&w, plan + at, 8);
		if (at == 7 * 8)
			w = 0;
		__asm__("crc32q %1, %0" : "+r"(c) : "r"(w));
	}
	return c;
}

void sf_apply_patch(const u8 *plan, u32 len)
{
	u64 h[8];
	if (len < sizeof h)
		return;
	memcpy(h, plan, sizeof h);
	/* It goes into every replica alike: no vote would find it wrong. */
	u32 bytes = (u32)(h[7] >> 32);
	ASSERT(bytes <= len && bytes % 8 == 0 && plan_sum(plan, bytes) == (u32)h[7]);
	if (h[6] & PLAN_CLOCKS)
		sf_clock_traps();
	h[6] &= ~PLAN_CLOCKS;
	if (!h[5])
		return;
	const u8 *p = plan + sizeof h;
	s64 r;
	if (h[3]) {
		r = raw(NR_mmap, h[2], h[3], 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, (u64)-1, 0);
		ASSERT((u64)r == h[2]);
		memcpy((void *)h[2], p, h[4]);
		r = raw(NR_mprotect, h[2], h[3], 5, 0, 0, 0);
		ASSERT(r == 0);
	}
	p += (h[4] + 7) & ~7ull;
	for (u64 i = 0; i < h[6]; i++, p += 16) {
		u64 t[2];
		memcpy(t, p, sizeof t);
		ASSERT(sf_traps.n < SF_TRAPS_MAX);
		sf_traps.at[sf_traps.n].addr = t[0];
		sf_traps.at[sf_traps.n].desc = (u32)t[1];
		sf_traps.at[sf_traps.n].len = (u32)(t[1] >> 32);
		sf_traps.n++;
	}
	const u64 protection = h[0] & 7;
	h[0] -= protection;
	r = raw(NR_mprotect, h[0], h[1], 7, 0, 0, 0);
	ASSERT(r == 0);
	for (u64 i = 0; i < h[5]; i++) {
		u64 w[2];
		memcpy(w, p, sizeof w);
		memcpy((void *)w[0], p + sizeof w, w[1]);
		if (h[5] == 1 && h[3])
			sf_behind_note(w[0]);
		p += sizeof w + ((w[1] + 7) & ~7ull);
	}
	r = raw(NR_mprotect, h[0], h[1], protection, 0, 0, 0);
	ASSERT(r == 0);
}
