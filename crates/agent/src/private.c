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

enum { NR_read = 0, NR_open = 2, NR_close = 3, NR_mmap = 9, NR_mprotect = 10, NR_munmap = 11, NR_mremap = 25 };
#define PAGE 4096ull


static void copy_region(u64 from, u64 to, u64 prot)
{
	u64 n = to - from;
	if (sys6(NR_mmap, SF_STAGE, n, 3, 0x2 | 0x20 | 0x100000, -1, 0) != (s64)SF_STAGE)
		return;
	/* A mapping may reach beyond its file, where reading is a bus error: copy up to there. */
	volatile u64 done = 0;
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		for (; done < n; done += PAGE)
			memcpy((void *)(SF_STAGE + done), (void *)(from + done), PAGE);
	}
	me.guard = NULL;
	if (done < n)
		sys2(NR_munmap, SF_STAGE + done, n - done);
	if (!done)
		return;
	sys3(NR_mprotect, SF_STAGE, done, prot);
	sf_sys(NR_mremap, SF_STAGE, done, done, 1 | 2 /* MAYMOVE|FIXED */, from, 0);
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

/* One mapping by its protection, as the options ask. */
void sf_privatise(u64 from, u64 to, u64 prot, int file)
{
	u32 o = G->options;
	int view;
	u64 end = sf_shared_part(from, to, &view);
	if (from < SF_OWN_END && to > SF_BASE)
		return;
	if (end < to)
		sf_privatise(end, to, prot, file);
	to = end;
	if (view) /* shared with its file by intent */
		return;
	if ((prot & 5) == 5 && (o & SF_O_PRIVATE_TEXT))
		copy_region(from, to, prot);
	else if (prot == 1 && file && (o & SF_O_PRIVATE_RODATA))
		copy_region(from, to, prot);
	else if ((prot & 3) == 3 && (o & SF_O_PRIVATE_REST))
		own_region(from, to);
}

static u64 hex(const u8 **p)
{
	u64 v = 0;
	for (;; (*p)++) {
		u8 c = **p;
		if (c >= '0' && c <= '9')
			v = v << 4 | (c - '0');
		else if (c >= 'a' && c <= 'f')
			v = v << 4 | (c - 'a' + 10);
		else
			return v;
	}
}

/* Everything this replica has, when it comes to be. */
void sf_privatise_all(void)
{
	static u8 text[65536];
	static struct { u64 from, to, prot, file; } list[512];
	u32 n = 0;
	u64 have = 0;
	if (!(G->options & (SF_O_PRIVATE_TEXT | SF_O_PRIVATE_RODATA | SF_O_PRIVATE_REST)))
		return;
	s64 maps = sys3(NR_open, "/proc/self/maps", 0, 0);
	if (maps < 0)
		return;
	for (;;) { /* listed first: copying changes the list */
		s64 got = sys3(NR_read, maps, text + have, sizeof text - 1 - have);
		if (got > 0)
			have += (u64)got;
		u64 line = 0, at = 0;
		for (; at < have; at++) {
			if (text[at] != '\n')
				continue;
			const u8 *p = text + line;
			u64 from = hex(&p);
			p++;
			u64 to = hex(&p);
			u64 prot = (p[1] == 'r') | (p[2] == 'w') << 1 | (p[3] == 'x') << 2;
			const u8 *flags = p;
			p += 6;
			hex(&p), p++, hex(&p), p++, hex(&p), p++;
			int file = *p != '0', kernel = 0;
			for (const u8 *q = p; q < text + at; q++)
				kernel |= *q == '[' && q[1] == 'v'; /* [vdso], [vvar], [vsyscall] */
			if (flags[4] == 'p' && !kernel && n < sizeof list / sizeof *list) {
				list[n].from = from, list[n].to = to, list[n].prot = prot, list[n].file = (u64)file;
				n++;
			}
			line = at + 1;
		}
		have -= line;
		memcpy(text, text + line, have);
		if (got <= 0)
			break;
	}
	sys1(NR_close, maps);
	for (u32 i = 0; i < n; i++)
		sf_privatise(list[i].from, list[i].to, list[i].prot, (int)list[i].file);
}
