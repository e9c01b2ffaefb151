/* Private: physical copies of memory that replicas would otherwise share.
 *
 * A replica is a fork of another, and its text is a page cache page: one physical frame
 * serves all, and a bit that flips in it flips in every replica, where no vote sees it
 * (Romain keeps a copy per replica; paper, Section 4.1). On request this replica takes its
 * own copy of code, of constants, or of everything.
 *
 * Not covered: the kernel's memory, and what other processes share with the file.
 */
#include "agent.h"
#include <asm/errno.h>

#define PAGE 4096ull

/* How much of it is done: less than all where a file ends. Negative: the kernel has refused. */
static s64 copy_piece(u64 from, u64 to, u64 prot)
{
	u64 n = to - from;
	s64 r = sys6(NR_mmap, SF_STAGE, n, 3, 0x2 | 0x20 | 0x4000 | 0x100000 /* PRIVATE|ANON|NORESERVE|FIXED_NOREPLACE */, -1, 0);
	if (r != (s64)SF_STAGE)
		return r < 0 ? r : -EEXIST;
	/* A mapping may reach beyond its file, where reading is a bus error: copy up to there. */
	volatile u64 done = 0;
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		for (; done < n; done += PAGE)
			if (!sf_page_is_zero((const u64 *)(from + done))) /* else a hole takes no memory */
				memcpy((void *)(SF_STAGE + done), (void *)(from + done), PAGE);
	}
	me.guard = NULL;
	if (done < n)
		sys2(NR_munmap, SF_STAGE + done, n - done);
	if (!done)
		return 0;
	r = sys3(NR_mprotect, SF_STAGE, done, prot);
	if (r == 0)
		r = sf_sys(NR_mremap, SF_STAGE, done, done, 1 | 2 /* MAYMOVE|FIXED */, from, 0);
	return r < 0 ? r : (s64)done;
}

#define STAGED (1ull << 30)

static s64 copy_region(u64 from, u64 to, u64 prot)
{
	for (u64 end; from < to; from = end) {
		end = to - from < STAGED ? to : from + STAGED;
		s64 done = copy_piece(from, end, prot);
		if (done < (s64)(end - from))
			return done < 0 ? done : 0;
	}
	return 0;
}

/* A store of the value that is there: the page becomes this process's own. */
static void own_region(u64 from, u64 to)
{
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		for (u64 p = from; p < to; p += PAGE)
			__asm__ volatile("lock orq $0, %0" : "+m"(*(u64 *)p));
	}
	me.guard = NULL;
}

/* Large memory of no file is mostly address space (a sanitizer reserves 16 TiB): a page that is not there is nobody's. What
 * has gone to swap is left out as well. */
#define LARGE (64ull << 20)

static s64 own_resident(u64 from, u64 to)
{
	static u8 there[LARGE / PAGE];
	for (u64 end; from < to; from = end) {
		end = to - from < LARGE ? to : from + LARGE;
		s64 r = sys3(NR_mincore, from, end - from, there);
		if (r < 0)
			return r;
		for (u64 p = from; p < end; p += PAGE)
			if (there[(p - from) / PAGE] & 1)
				own_region(p, p + PAGE);
	}
	return 0;
}

static s64 own(u64 from, u64 to, int file)
{
	if (!file && to - from > LARGE)
		return own_resident(from, to);
	own_region(from, to);
	return 0;
}

/* A copy, which a fork has given to two. */
static s64 own_constants(u64 from, u64 to, int file)
{
	s64 r = sys3(NR_mprotect, from, to - from, 3);
	if (r < 0)
		return r;
	r = own(from, to, file);
	s64 back = sys3(NR_mprotect, from, to - from, 1);
	return r < 0 ? r : back;
}

/* One mapping by its protection, as the options ask. Negative: the kernel has refused. */
static s64 privatise(u64 from, u64 to, u64 prot, int file)
{
	u32 o = G->options;
	int view;
	u64 end = sf_shared_part(from, to, &view);
	if (from < SF_OWN_END && to > SF_BASE)
		return 0;
	if (end < to) {
		s64 r = privatise(end, to, prot, file);
		if (r < 0)
			return r;
	}
	to = end;
	if (view) /* shared with its file by intent */
		return 0;
	if ((prot & 5) == 5 && (o & SF_O_PRIVATE_TEXT))
		return copy_region(from, to, prot);
	if (prot == 1 && (o & SF_O_PRIVATE_RODATA))
		return file ? copy_region(from, to, prot) : own_constants(from, to, file);
	return (prot & 3) == 3 && (o & SF_O_PRIVATE_REST) ? own(from, to, file) : 0;
}

/* A new mapping of the program's. Without a copy nobody goes on: the leader refuses, a follower is none. */
void sf_privatise(u64 from, u64 to, u64 prot, int file)
{
	if (privatise(from, to, prot, file) >= 0)
		return;
	if (me.slot == 0)
		sf_end(SF_E_REFUSED, SF_NR_PRIVATE, 0, me.regs);
	me.poison |= SF_SPOILED | SF_SPOILED_ALONE;
}

struct mapping {
	u64 from, to, prot, file;
};

/* A line of /proc/PID/maps: "from-to rwxp offset major:minor inode   name". 0: nothing to copy. */
static int parse(const u8 *p, const u8 *end, struct mapping *m)
{
	int kernel = 0;
	m->from = sf_hex(&p);
	p++;
	m->to = sf_hex(&p);
	m->prot = (p[1] == 'r') | (p[2] == 'w') << 1 | (p[3] == 'x') << 2;
	int private = p[4] == 'p';
	p += 6;
	sf_hex(&p), p++, sf_hex(&p), p++, sf_hex(&p), p++;
	m->file = *p != '0';
	for (; p < end; p++)
		kernel |= *p == '[' && p[1] == 'v'; /* [vdso], [vvar], [vsyscall] */
	return private && !kernel;
}

#define LISTED 512u
static struct mapping list[LISTED];

/* The first mappings from an address on: copying changes what the kernel lists. Negative: it lists none. */
static s64 list_from(u64 start)
{
	static u8 text[65536];
	u32 n = 0;
	u64 have = 0;
	s64 got, maps = sys3(NR_open, "/proc/self/maps", 0, 0);
	if (maps < 0)
		return maps;
	do {
		got = sys3(NR_read, maps, text + have, sizeof text - 1 - have);
		if (got > 0)
			have += (u64)got;
		u64 line = 0;
		for (u64 at = 0; at < have; at++) {
			if (text[at] != '\n')
				continue;
			if (n < LISTED && parse(text + line, text + at, &list[n]) && list[n].from >= start)
				n++;
			line = at + 1;
		}
		have -= line;
		memcpy(text, text + line, have);
	} while (got > 0 && n < LISTED);
	sys1(NR_close, maps);
	return n;
}

/* Everything this replica has, when it comes to be. */
s64 sf_privatise_all(void)
{
	u64 start = 0;
	s64 n, r;
	if (!(G->options & (SF_O_PRIVATE_TEXT | SF_O_PRIVATE_RODATA | SF_O_PRIVATE_REST)))
		return 0;
	do {
		n = list_from(start);
		for (s64 i = 0; i < n; i++)
			if ((r = privatise(list[i].from, list[i].to, list[i].prot, (int)list[i].file)) < 0)
				return r;
		if (n > 0)
			start = list[n - 1].to;
	} while (n == LISTED);
	return n < 0 ? n : 0;
}
