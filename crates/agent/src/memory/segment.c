/* Segment: files of /dev/shm that processes of a tree make, and map by their names.
 *
 *   open(O_CREAT|O_EXCL) in a tmpfs ──► the launcher remembers the file: it is the tree's own
 *   open(O_CREAT) in /dev/shm       ──► with O_EXCL first, if the file is not there
 *   shmget(IPC_CREAT)               ──► with IPC_EXCL first
 *   mmap(MAP_SHARED) of it          ──► the launcher has one copy for each follower index
 *                                       leader: the file itself      follower r: copy r, attached by its number
 *
 * So a process that was made before the file was, and that learns its name, finds at every index what the others of that
 * index have stored (shm_open(3), sem_open(3), PostgreSQL's parallel workers). Copies are System V segments that are
 * marked as removed: a process attaches one by its number whatever rights it has given up, and none outlives the tree.
 *
 * A program that is one process alone maps such a file as any other (shared.c), which keeps its repair; at a fork the
 * mapping becomes a segment.
 *
 * In a pair each site has the file itself, made and mapped by its own processes. So it is with segments of System V that the
 * program makes: each site has its own, and the program knows it by one number at both.
 *
 * What processes of the tree write to such a file goes to the copies as well (written.c).
 *
 * Not covered: outsiders that open the file.
 * See shm_overview(7), tmpfs(5); crates/replica/src/segments.rs.
 */
#include "agent.h"
#include <asm/errno.h>

#define PAGE 4096ull
#define TREE ((struct sf_tree *)SF_TREE)
#define O_CREAT 0100u
#define O_EXCL 0200u
#define PROT_READ 1
#define MAP_SHARED 1
#define MAP_FIXED 0x10
#define PROT_WRITE 2
#define MREMAP_MAYMOVE 1
#define MREMAP_FIXED 2
#define IPC_RMID 0
#define SHM_RDONLY 010000u
#define IPC_STAT 2u
#define IPC_CREAT 01000u
#define IPC_EXCL 02000u
#define NEW (IPC_CREAT | IPC_EXCL)
#define TMPFS 0x01021994u
#define SEGMENT_STAGE (SF_DOMAIN + (1ull << 30))
#define STAGE_BYTES (30ull << 30) /* up to SF_STAGE */

int sf_is_tmpfs(u64 fd)
{
	s64 f[15];
	return sys2(NR_fstatfs, fd, f) == 0 && (u32)f[0] == TMPFS;
}

enum { A_FILE, A_MEMORY_OBJECT, HANDED_ON }; /* what the launcher is told of one */

/* Of the call in progress: the leader has made it with O_EXCL, which the program has not asked for. */
static int asked_first;

static u64 *flags_of_open(u32 nr, u64 call[7])
{
	return nr == NR_open ? &call[2] : nr == NR_openat || nr == NR_shmget ? &call[3] : NULL;
}

static u64 exclusive(u32 nr)
{
	return nr == NR_shmget ? IPC_EXCL : O_EXCL;
}

/* Leader, before a file is opened that shm_open(3) makes if it is not there, or a segment that shmget(2) makes so: whether the
 * program makes it is to be known. */
void sf_segment_opens(u32 nr, u64 call[7])
{
	static const char folder[] = "/dev/shm/";
	static char name[512];
	u64 st[18], *flags = flags_of_open(nr, call);
	asked_first = 0;
	if (nr == NR_shmget && !(G->options & SF_O_PAIR) && call[1] && (*flags & NEW) == IPC_CREAT) {
		*flags |= IPC_EXCL;
		asked_first = 1;
	}
	if (nr == NR_shmget)
		return;
	if (!flags || (*flags & (O_CREAT | O_EXCL)) != O_CREAT || (G->options & SF_O_PAIR))
		return;
	const s64 n = sf_user_string(name, nr == NR_open ? call[1] : call[2], sizeof name);
	if (n < (s64)sizeof folder || memcmp(name, folder, sizeof folder - 1) != 0)
		return;
	asked_first = sys2(NR_lstat, name, st) == -ENOENT;
	if (asked_first)
		*flags |= O_EXCL;
}

/* 1: somebody else has made it meanwhile: the call is made again, as the program has asked. */
int sf_segment_opens_again(u32 nr, u64 call[7], s64 ret)
{
	if (likely(!asked_first || ret != -EEXIST))
		return 0;
	*flags_of_open(nr, call) &= ~exclusive(nr);
	asked_first = 0;
	me.made = 0; /* nothing has happened */
	store(&G->slot[0].made, 0);
	return 1;
}

/* Leader, and both sites of a pair: a file has been opened. One that did not exist is the program's own. A memory object
 * (memfd_create(2)) is one as well, once other processes can have it: by a fork, or by a message. */
void sf_segment_opened(u32 nr, const u64 a[6], s64 fd)
{
	u64 flags = nr == NR_open ? a[1] : nr == NR_openat ? a[2] : nr == NR_memfd_create ? O_CREAT | O_EXCL : 0;
	u64 st[18]; /* struct stat: device and inode come first */
	if (asked_first && me.slot == 0)
		flags |= O_EXCL;
	if (fd < 0 || (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL) || !sf_is_tmpfs((u64)fd) || sys2(NR_fstat, fd, st) < 0)
		return;
	if (!(G->options & SF_O_PAIR)) {
		sf_rpc(SF_RPC_MADE, st[0], st[1], nr == NR_memfd_create ? A_MEMORY_OBJECT : A_FILE, 0, 0);
		return;
	}
	u64 *made = TREE->made[__atomic_fetch_add(&TREE->made_n, 1, __ATOMIC_SEQ_CST) % SF_TREE_MADE];
	store(&made[0], st[0]);
	store(&made[1], st[1]);
}

/* Leader, before messages are sent: memory objects in them are for other processes as well. */
void sf_segment_handed(u32 nr, const u64 a[6])
{
	static s32 fd[SF_RIGHTS_MAX];
	u64 st[18], msg;
	for (u32 i = 0; (msg = sf_message_sent(nr, a, i)) != 0; i++)
		for (u32 n = sf_message_rights(msg, fd, SF_RIGHTS_MAX); n--;)
			if (sf_is_tmpfs((u32)fd[n]) && sys2(NR_fstat, fd[n], st) == 0)
				sf_rpc(SF_RPC_MADE, st[0], st[1], HANDED_ON, 0, 0);
}

/* In a pair: whether a descriptor is one of such a file. Each site has its own, which its processes map: one at a time runs. */
int sf_segment_of_site(u64 fd)
{
	u64 st[18];
	if (!sf_is_tmpfs(fd) || sys2(NR_fstat, fd, st) < 0)
		return 0;
	for (u32 i = 0; i < SF_TREE_MADE; i++)
		if (load(&TREE->made[i][0]) == st[0] && load(&TREE->made[i][1]) == st[1])
			return 1;
	return 0;
}

/* Leader: takes the numbers of the copies from where the launcher has put them, and checks them. */
static int take_copies(struct sf_shared_file *f, s64 sum)
{
	u64 crc = 0xffffffff, word; /* CRC32C, as crates/replica/src/supervise/mod.rs, let_share */
	for (u32 s = 0; s < SF_SLOTS_MAX; s++)
		f->copy[s] = load(&G->segment_ids[s]);
	f->size = (u64)(u32)f->copy[0] * PAGE;
	for (u32 s = 0; s < SF_SLOTS_MAX; s += 2) {
		memcpy(&word, &f->copy[s], sizeof word);
		__asm__("crc32q %1, %0" : "+r"(crc) : "r"(word));
	}
	return (u32)~crc == (u32)sum;
}

/* Leader: whether the file is to be memory that processes share from here on. `fd`: its own descriptor, or the launcher's
 * (SF_SEGMENT_HELD), where SF_SEGMENT_NAMELESS says that only this program's processes can reach it. Negative: it is, and
 * cannot be. */
int sf_segment_wanted(u64 fd, struct sf_shared_file *f, u64 end, u64 how)
{
	for (u32 tries = 0; tries < 3; tries++) {
		s64 r = sf_rpc(SF_RPC_SEGMENT, fd, f->dev, f->ino, sf_domain_id(), sf_page_up(end) | how);
		if (r <= SF_SEGMENT_OWN)
			return (int)r;
		if (take_copies(f, r)) {
			f->flags = SF_M_KNOWN | SF_M_SEGMENT;
			f->hold = -1;
			return 1;
		}
	}
	return -EIO;
}

/* Leader: whether the file behind a descriptor is memory that processes share, and the copies that followers have of it. Negative: of
 * processes whose turns are others. */
int sf_segment_copies(u64 fd, struct sf_shared_file *f)
{
	for (u32 tries = 0; tries < 3 && sf_is_tmpfs(fd); tries++) {
		s64 r = sf_rpc(SF_RPC_COPIES, fd, f->dev, f->ino, sf_domain_id(), 0);
		if (r <= 0)
			return (int)r;
		if (take_copies(f, r))
			return 1;
	}
	return sf_is_tmpfs(fd) ? -EIO : 0;
}

/* Leader, before a mapping: see above. 1: it is one. It may become one: SF_M_OWN. */
int sf_segment_asks(const u64 a[6], struct sf_shared_file *f, u32 *flags)
{
	if (!sf_is_tmpfs((u32)a[4]) || f->size > STAGE_BYTES)
		return 0;
	int r = sf_segment_wanted((u32)a[4], f, a[5] + a[1], app.domain ? SF_SEGMENT_NOW : 0);
	if (r < 0)
		sf_end(SF_E_REFUSED, SF_NR_SHARED_NAMED, SF_REFUSED_FILE(a[4], -r), me.regs);
	if (r == SF_SEGMENT_OWN)
		*flags |= SF_M_OWN;
	return r == 1;
}

/* Part of a segment of `whole` bytes, at `at`: all of it is attached where the program has nothing. */
static s64 attach_part(s32 id, u64 whole, u64 offset, u64 bytes, u64 at, u64 prot, int reads)
{
	const u64 part = SEGMENT_STAGE + offset, end = SEGMENT_STAGE + sf_page_up(whole);
	s64 r = sf_sys(NR_shmat, (u64)id, SEGMENT_STAGE, reads ? SHM_RDONLY : 0, 0, 0, 0);
	if (sf_failed(r))
		return r;
	r = sf_sys(NR_mremap, part, sf_page_up(bytes), sf_page_up(bytes), MREMAP_MAYMOVE | MREMAP_FIXED, at, 0);
	if (offset)
		sys2(NR_munmap, SEGMENT_STAGE, offset);
	if (part + sf_page_up(bytes) < end)
		sys2(NR_munmap, part + sf_page_up(bytes), end - part - sf_page_up(bytes));
	if (!sf_failed(r) && prot != (reads ? PROT_READ : PROT_READ | PROT_WRITE) &&
	    sf_failed(sys3(NR_mprotect, at, sf_page_up(bytes), prot)))
		return -ENOMEM;
	return r;
}

/* A follower's: part of its copy. A copy is as long as the file, and the launcher refuses what reaches behind its end. */
static s64 attach(const struct sf_shared_file *f, u64 offset, u64 bytes, u64 at, u64 prot)
{
	return attach_part(f->copy[me.slot], f->size, offset, bytes, at, prot, (f->flags & SF_M_READS) != 0);
}

/* A file, in the place of what this process has there: of a new leader, and one that a site which joins has made again. */
static s64 map_file(const char *path, const u64 *m)
{
	const s64 fd = sys3(NR_open, path, 02000002 /* O_RDWR|O_CLOEXEC */, 0);
	if (fd < 0)
		return fd;
	s64 r = sys6(NR_mmap, m[0], sf_page_up(m[1]), m[4], MAP_SHARED | MAP_FIXED, fd, m[2]);
	sys1(NR_close, fd);
	return r;
}

/* A replica made anew, from one of another index: in the place of that one's segments, those of its own; and a site that joins. The
 * launcher has listed them: how many, then of each address, bytes, offset, number and protection (crates/replica, domain.rs). In place
 * of a number there may be where a path stands, from here on (segments.rs). */
#define BY_PATH (1ull << 63)
s64 sf_segments_anew(void)
{
	const u64 *l = (const u64 *)(SF_SHARED + SF_OFF_TRANSFER + 65536);
	u64 about[14]; /* struct shmid64_ds: the size comes behind the rights, six words */
	for (u64 i = 0; i < l[0]; i++) {
		const u64 *m = l + 1 + 5 * i;
		s64 r;
		if (m[3] & BY_PATH)
			r = map_file((const char *)l + (m[3] & ~BY_PATH), m);
		else if (!sf_failed(r = sys3(NR_shmctl, m[3], IPC_STAT, about)))
			r = sf_page_up(about[6]) < m[2] + m[1] ? -EINVAL : attach_part((s32)m[3], about[6], m[2], m[1], m[0], m[4], 0);
		if (sf_failed(r))
			return r;
	}
	return 0;
}

/* Leader, behind shmget(2): whether the segment is new. */
int sf_segment_is_made(const u64 a[6])
{
	return sf_segment_made(a) || asked_first;
}

/* ---- System V, in a pair ---- */

/* Whether shmget(2) with these arguments makes a segment that the program may attach (domain.c). */
int sf_segment_made(const u64 a[6])
{
	return (u32)a[0] == 0 /* IPC_PRIVATE */ || ((u32)a[2] & NEW) == NEW;
}

/* Whether a segment is one that a program which has ended left behind: nobody has it attached, and who made it is gone. */
static int is_left_behind(s64 id)
{
	u64 about[14]; /* struct shmid64_ds: behind size and three times come who made it and how many have it */
	return id >= 0 && sys3(NR_shmctl, id, IPC_STAT, about) == 0 && about[11] == 0 && sys2(NR_kill, (s32)about[10], 0) == -ESRCH;
}

/* The secondary, after the primary has made one: its own, as the last program of this host may have left one by that key. */
s64 sf_segment_make(const u64 a[6])
{
	const s64 r = sys3(NR_shmget, a[0], a[1], a[2]);
	if (r != -EEXIST)
		return r;
	const s64 old = sys3(NR_shmget, a[0], 0, 0);
	if (!is_left_behind(old) || sys3(NR_shmctl, old, IPC_RMID, 0) < 0)
		return r;
	return sys3(NR_shmget, a[0], a[1], a[2]);
}

/* Every replica: the mapping itself. */
s64 sf_segment_map(const u64 a[6], s64 forced, const struct sf_shared_file *f)
{
	if (me.slot == 0) {
		sf_domain_has_named();
		return sys6(NR_mmap, a[0], a[1], a[2], a[3], a[4], a[5]);
	}
	return attach(f, a[5], a[1], (u64)forced, a[2] & 7);
}

/* A view that has become a segment: the leader's mapping is the file's already. */
s64 sf_segment_replaces(u64 from, u64 to, u64 offset, u32 prot, const struct sf_shared_file *f)
{
	if (me.slot != 0)
		return attach(f, offset, to - from, from, prot);
	sf_domain_has_named();
	return 0;
}
