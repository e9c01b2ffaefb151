/* Shown: protected files that the program has mapped.
 *
 * In a pair such a mapping is anonymous memory that holds what was read (parts.c). The kernel does not know that it shows a file, so
 * this table does:
 *
 *   a write to a file that is mapped shared   the log says which bytes of it go where; every replica copies them
 *   munmap, mmap over it, mremap, mprotect    the table follows
 *   mremap to more, MADV_DONTNEED, a mapping made writable   answered, since memory would not do as a file does
 *
 * Where in memory they are is equal in all replicas (struct sf_mirror). Which file it is each site knows for itself.
 *
 * Invariant: no process goes on from a write to a file that another one has mapped shared. The table of the site (struct sf_tree) says
 * who has.
 *
 * Not covered: whole pages behind a file's end, which read as zeros (bare: SIGBUS); what MAP_PRIVATE shows of later writes, which
 * mmap(2) leaves open.
 */
#include "agent.h"
#include "ground/stat.h"
#include "pair/storage.h"

#include <asm/errno.h>

#define PAGE 4096ull
#define TREE ((struct sf_tree *)SF_TREE)
#define PROT_WRITE 2u
#define NAME_BYTES 512u
/* Above half of the table nothing more is mapped: the rest is for mappings that are cut into pieces. */
#define ROOM (SF_SHOWN_MAX / 2)

/* This site's own: the files that are mapped shared. */
static struct {
	u64 dev, ino;
	char name[NAME_BYTES]; /* for a site that joins */
} files[SF_SHOWN_FILES];

static struct piece {
	u64 to, from, n; /* from ~0: zeros */
} pieces[256];
static u32 pieces_n;

/* ---- the site's processes ---- */

static int is_used(u32 file)
{
	for (u32 i = 0; i < app.shown_n; i++)
		if (app.shown[i].file == file + 1)
			return 1;
	return 0;
}

static int is_mine(u64 dev, u64 ino)
{
	for (u32 f = 0; f < SF_SHOWN_FILES; f++)
		if (files[f].dev == dev && files[f].ino == ino && is_used(f))
			return 1;
	return 0;
}

static void tell_of(u64 dev, u64 ino, u32 process)
{
	u32 free = SF_TREE_SHOWN;
	for (u32 i = 0; i < SF_TREE_SHOWN; i++) {
		const struct sf_sight *s = &TREE->shown[i];
		if (s->process == process && s->dev == dev && s->ino == ino)
			return;
	}
	for (u32 i = 0; i < SF_TREE_SHOWN && free == SF_TREE_SHOWN; i++) {
		u32 none = 0;
		if (__atomic_compare_exchange_n(&TREE->shown[i].process, &none, process, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			free = i;
	}
	if (free == SF_TREE_SHOWN) {
		store(&TREE->shown_lost, 1u);
		return;
	}
	TREE->shown[free].dev = dev;
	store(&TREE->shown[free].ino, ino);
}

/* What this process has mapped, and has no more, the others learn. */
static void tell_all(void)
{
	const u32 own = (u32)sys0(NR_getpid);
	if (me.role == SF_RERUN)
		return;
	for (u32 i = 0; i < SF_TREE_SHOWN; i++) {
		struct sf_sight *s = &TREE->shown[i];
		if (load(&s->process) != own || is_mine(s->dev, s->ino))
			continue;
		s->dev = s->ino = 0;
		store(&s->process, 0u);
	}
	for (u32 f = 0; f < SF_SHOWN_FILES; f++)
		if (is_used(f))
			tell_of(files[f].dev, files[f].ino, own);
}

/* A new process. */
void sf_shown_born(void)
{
	if (app.shown_n)
		tell_all();
}

/* Its parent, which may write before the child has said so itself. */
void sf_shown_bore(u32 child)
{
	for (u32 f = 0; app.shown_n && f < SF_SHOWN_FILES; f++)
		if (is_used(f))
			tell_of(files[f].dev, files[f].ino, child);
}

/* Its memory is gone: a new program, or the end of one. */
void sf_shown_leaves(void)
{
	const u32 own = (u32)sys0(NR_getpid);
	for (u32 i = 0; i < SF_TREE_SHOWN && me.role != SF_RERUN; i++)
		if (load(&TREE->shown[i].process) == own) {
			TREE->shown[i].dev = TREE->shown[i].ino = 0;
			store(&TREE->shown[i].process, 0u);
		}
}

/* A zombie shows nothing any more, and has its number until its parent has heard of it (proc_pid_stat(5)). */
static int has_memory(u32 process)
{
	char name[32] = "/proc/", text[64] = "";
	u32 at = 6 + sf_decimal(name + 6, process);
	memcpy(name + at, "/stat", 6);
	const s64 fd = sys3(NR_open, name, 02000000 /* O_RDONLY|O_CLOEXEC */, 0);
	const s64 n = fd < 0 ? 0 : sys3(NR_read, fd, text, sizeof text - 1);
	if (fd >= 0)
		sys1(NR_close, fd);
	for (s64 i = n - 3; i > 0; i--)
		if (text[i] == ')')
			return text[i + 2] != 'Z' && text[i + 2] != 'X';
	return sys2(NR_kill, process, 0) != -ESRCH;
}

/* Leader, before a file is changed, with its turn: whether another process has it mapped. */
int sf_shown_elsewhere(const struct stat *st)
{
	const u32 own = (u32)sys0(NR_getpid);
	for (u32 i = 0; i < SF_TREE_SHOWN; i++) {
		struct sf_sight *s = &TREE->shown[i];
		u32 process = load(&s->process);
		if (!process || process == own || s->dev != st->dev || s->ino != st->ino)
			continue;
		if (has_memory(process))
			return 1;
		__atomic_compare_exchange_n(&s->process, &process, 0, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	}
	return load(&TREE->shown_lost) != 0;
}

/* ---- the table, in every replica ---- */

static int is_room_on_site(void)
{
	for (u32 i = 0; i < SF_TREE_SHOWN; i++)
		if (!load(&TREE->shown[i].process))
			return 1;
	return 0;
}

static u32 free_file(void)
{
	u32 f = 0;
	while (f < SF_SHOWN_FILES && is_used(f))
		f++;
	return f;
}

/* Leader: 0, or why not. Where other processes may change the file, one that is open to be changed is read instead. */
s64 sf_shown_room(u64 fd, int shared, int writes)
{
	char name[NAME_BYTES];
	if (app.shown_n >= ROOM)
		return -ENODEV;
	if (!shared)
		return 0;
	if ((writes && sf_pair_has_others()) || free_file() == SF_SHOWN_FILES || !is_room_on_site() || load(&TREE->shown_lost))
		return -ENODEV;
	const s64 n = sf_fd_name(fd, name, sizeof name);
	return n > 0 && n < (s64)sizeof name ? 0 : -ENODEV;
}

static void add_shown(u64 start, u64 end, u64 offset, u32 prot, u32 file)
{
	if (start >= end)
		return;
	ASSERT(app.shown_n < SF_SHOWN_MAX);
	app.shown[app.shown_n++] = (struct sf_shown){ start, end, offset, prot, file };
}

/* Memory that now shows the file of an mmap(2). */
void sf_shown_begins(u64 at, const u64 a[6], int shared)
{
	const u32 f = shared ? free_file() : 0;
	struct stat st;
	if (shared && me.role != SF_RERUN) {
		const s64 n = sf_fd_name((u32)a[4], files[f].name, NAME_BYTES - 1);
		files[f].name[n > 0 ? n : 0] = 0;
		memset(&st, 0, sizeof st);
		sys2(NR_fstat, (u32)a[4], &st);
		files[f].dev = st.dev;
		files[f].ino = st.ino;
	}
	add_shown(at, at + sf_page_up(a[1]), a[5], (u32)a[2] & 7, shared ? f + 1 : 0);
	if (shared)
		tell_all();
}

static int meets(const struct sf_shown *s, u64 from, u64 to)
{
	return s->start < to && s->end > from;
}

/* Takes [from, to) out of the table. What it had goes to `out`; its number. */
static u32 cut_out(u64 from, u64 to, struct sf_shown out[SF_SHOWN_MAX])
{
	u32 n = 0;
	for (u32 i = 0; i < app.shown_n;) {
		const struct sf_shown s = app.shown[i];
		if (!meets(&s, from, to)) {
			i++;
			continue;
		}
		app.shown[i] = app.shown[--app.shown_n];
		const u64 low = s.start > from ? s.start : from, high = s.end < to ? s.end : to;
		out[n++] = (struct sf_shown){ low, high, s.offset + (low - s.start), s.prot, s.file };
		add_shown(s.start, low, s.offset, s.prot, s.file);
		add_shown(high, s.end, s.offset + (high - s.start), s.prot, s.file);
	}
	return n;
}

static struct sf_shown cut_off[SF_SHOWN_MAX];

static void moves_shown(const u64 a[6], u64 to)
{
	const u64 had = sf_page_up(a[1]), has = sf_page_up(a[2]), kept = had < has ? had : has;
	const u32 n = cut_out(a[0], a[0] + had, cut_off);
	if (to != a[0]) {
		static struct sf_shown none[SF_SHOWN_MAX];
		cut_out(to, to + has, none);
	}
	for (u32 i = 0; i < n; i++) {
		const struct sf_shown *s = &cut_off[i];
		const u64 end = s->end < a[0] + kept ? s->end : a[0] + kept;
		if (s->start < end)
			add_shown(s->start - a[0] + to, end - a[0] + to, s->offset, s->prot, s->file);
	}
}

/* A call that has changed what is mapped. */
void sf_shown_changed(u32 nr, const u64 a[6], s64 ret)
{
	if (sf_failed(ret))
		return;
	switch (nr) {
	case NR_munmap: cut_out(a[0], a[0] + sf_page_up(a[1]), cut_off); break;
	case NR_mmap:
		if (!(a[3] & 0x10 /* MAP_FIXED */))
			return;
		cut_out((u64)ret, (u64)ret + sf_page_up(a[1]), cut_off);
		break;
	case NR_mremap: moves_shown(a, (u64)ret); break;
	case NR_mprotect:
	case NR_pkey_mprotect:
		for (u32 n = cut_out(a[0], a[0] + sf_page_up(a[1]), cut_off); n--;)
			add_shown(cut_off[n].start, cut_off[n].end, cut_off[n].offset, (u32)a[2] & 7, cut_off[n].file);
		return;
	default: return;
	}
	tell_all();
}

/* What a call answers that would do to such memory what it does to no file: an errno above 0, or 0 where nothing is to be done.
 * Negative: it is made. */
int sf_shown_answers(u32 nr, const u64 a[6])
{
	const u64 from = a[0], to = a[0] + sf_page_up(a[1]);
	enum { MADV_DONTNEED = 4, MADV_FREE = 8, MADV_REMOVE = 9, MADV_DONTNEED_LOCKED = 24 };
	if (nr != NR_mremap && nr != NR_mprotect && nr != NR_pkey_mprotect && nr != NR_madvise)
		return -1;
	for (u32 i = 0; i < app.shown_n; i++) {
		const struct sf_shown *s = &app.shown[i];
		const u32 advice = (u32)a[2];
		if (!meets(s, from, to))
			continue;
		if (nr == NR_mremap && a[2] > a[1])
			return ENOMEM;
		if ((nr == NR_mprotect || nr == NR_pkey_mprotect) && s->file && (a[2] & PROT_WRITE))
			return EACCES;
		if (nr != NR_madvise)
			continue;
		if (advice == MADV_FREE || advice == MADV_REMOVE)
			return EINVAL;
		/* Of a file that nobody stores to it brings back what is there. */
		if (advice == MADV_DONTNEED || advice == MADV_DONTNEED_LOCKED)
			return !(s->prot & PROT_WRITE) && from >= s->start && to <= s->end ? 0 : EINVAL;
	}
	return -1;
}

/* ---- what was written ---- */

static struct {
	struct stat st;
	u64 off;
} written;

/* The file that a call has changed from `off` on. */
void sf_shown_of(const struct stat *st, u64 off)
{
	written.st = *st;
	written.off = off;
	pieces_n = 0;
}

static void add_piece(const struct sf_shown *s, u64 off, u64 from, u64 n)
{
	const u64 end = s->offset + (s->end - s->start), low = off > s->offset ? off : s->offset, high = off + n < end ? off + n : end;
	if (low >= high)
		return;
	if (pieces_n == sizeof pieces / sizeof *pieces)
		sf_end(SF_E_REFUSED, SF_NR_PAIR_SHOWN, 0, me.regs);
	pieces[pieces_n++] = (struct piece){ s->start + (low - s->offset), from == ~0ull ? from : from + (low - off), high - low };
}

/* `n` bytes from there on; from ~0: nothing is there any more. */
void sf_shown_bytes(u64 fd, u64 from, u64 n)
{
	(void)fd;
	for (u32 i = 0; i < app.shown_n; i++) {
		const struct sf_shown *s = &app.shown[i];
		if (s->file && files[s->file - 1].dev == written.st.dev && files[s->file - 1].ino == written.st.ino)
			add_piece(s, written.off, from, n);
	}
	written.off += n;
}

/* Leader: into the log, before all else that the result carries. */
void sf_shown_tells(struct sf_result *r)
{
	const u64 n = pieces_n;
	if (!n)
		return;
	r->flags |= SF_R_PARTS;
	sf_result_bytes(r, &n, sizeof n);
	sf_result_bytes(r, pieces, (u32)(n * sizeof *pieces));
}

/* Follower: it has come to the same. */
int sf_shown_agrees(const struct sf_result *r)
{
	const u64 n = pieces_n;
	if (!(r->flags & SF_R_PARTS))
		return n == 0;
	return r->out_len >= sizeof n + n * sizeof *pieces && *(const u64 *)(PAYLOAD + r->out_off) == n &&
	       memcmp(PAYLOAD + r->out_off + sizeof n, pieces, n * sizeof *pieces) == 0;
}

static u32 protection_at(u64 at)
{
	for (u32 i = 0; i < app.shown_n; i++)
		if (at >= app.shown[i].start && at < app.shown[i].end)
			return app.shown[i].prot;
	return 0;
}

/* Every replica: what the log says is shown. */
void sf_shown_applies(const struct sf_result *r)
{
	const u8 *at = PAYLOAD + r->out_off;
	const u64 n = *(const u64 *)at;
	for (u64 i = 0; i < n && i < sizeof pieces / sizeof *pieces; i++) {
		const struct piece p = ((const struct piece *)(at + sizeof n))[i];
		const u64 from = p.to & ~(PAGE - 1), bytes = sf_page_up(p.to + p.n) - from;
		s64 failed = sys3(NR_mprotect, from, bytes, 3);
		if (failed == 0 && p.from == ~0ull)
			memset((void *)p.to, 0, p.n);
		else if (failed == 0)
			failed = sf_user_bytes((void *)p.to, p.from, p.n);
		sys3(NR_mprotect, from, bytes, protection_at(p.to));
		me.poison |= failed < 0;
	}
}

/* ---- a site that joins ---- */

/* Survivor: the names of such files at `to`, behind their number of bytes. Negative: one has no name any more. */
s64 sf_shown_give(u8 *to)
{
	u64 at = 8;
	for (u32 f = 0; f < SF_SHOWN_FILES; f++) {
		struct stat st;
		if (!is_used(f))
			continue;
		if (sys2(NR_stat, files[f].name, &st) < 0 || st.dev != files[f].dev || st.ino != files[f].ino)
			return -ENOENT;
		*(u64 *)(to + at) = f;
		memcpy(to + at + 8, files[f].name, NAME_BYTES);
		at += 8 + NAME_BYTES;
	}
	*(u64 *)to = at;
	return (s64)at;
}

/* Joiner, which has its files by now: `at` as the survivor has written it, `theirs` its table. */
s64 sf_shown_take(const u8 *at)
{
	const u64 end = *(const u64 *)at;
	for (u64 i = 8; i + 8 + NAME_BYTES <= end; i += 8 + NAME_BYTES) {
		const u64 f = *(const u64 *)(at + i);
		struct stat st;
		if (f >= SF_SHOWN_FILES || at[i + 8 + NAME_BYTES - 1])
			return -EBADMSG;
		memcpy(files[f].name, at + i + 8, NAME_BYTES);
		const s64 r = sys2(NR_stat, files[f].name, &st);
		if (r < 0)
			return r;
		files[f].dev = st.dev;
		files[f].ino = st.ino;
		tell_of(st.dev, st.ino, (u32)sys0(NR_getpid));
	}
	return 0;
}
