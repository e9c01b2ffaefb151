/* Storage: the calls that both sites of a pair make on files of their own.
 *
 * In a pair (SF_O_PAIR) slot 0 and slot 1 live on two hosts. Sockets, clocks and random numbers
 * are the primary's, and the secondary takes them from the log as any follower does. Files are
 * not: the secondary opens, reads and writes its own, at the same log positions and under the
 * same descriptor numbers, and compares what its disk gives with what the log holds.
 *
 *   primary    read ──► result and note in the log ──► waits until the secondary has compared
 *   secondary           waits for the result ──► reads its own disk ──► equal? ──► done
 *                                                                         │ no
 *                                                     the launcher arbitrates and repairs, then
 *                                                     the read is made again (SF_RPC_PAIR_READ)
 *
 * Invariants
 *  1. Neither program goes on from a read before both disks have given the same bytes.
 *  2. A descriptor has the same class on both sites: it follows from agreed events alone.
 *  3. A storage call that ends differently on the two sites is never passed over in silence.
 *
 * What is no file exists on both sites as well, but only the primary's is in use: the secondary keeps
 * sockets, what polls them, and devices at the same numbers, so that it can lead when the primary is
 * lost (sf_pair_lead). Of a TCP connection it knows the first sequence numbers and counts bytes; then
 * it can go on with it (TCP_REPAIR, tcp(7)).
 *
 * What the kernel would move by itself, or show in memory, is read and written by calls of the agent's (parts.c, shown.c).
 *
 * Not covered: the order and the inode numbers of directory entries, times. See docs/concepts/pair.md.
 */
#include "agent.h"
#include "ground/stat.h"
#include "pair/storage.h"

#include <asm/errno.h>

#define PAGE 4096ull
#define O_WRONLY 1
#define O_TRUNC 01000
#define O_APPEND 02000
#define O_TMPFILE 020000000
#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IFDIR 0040000
#define HIGH (FDS_MAX - 64) /* numbers that few programs come to */
#define WRITE_MAX (64ull << 20) /* beside what else one result carries */

u8 sf_fd_class[FDS_MAX];
/* The secondary's account of connections. The last bytes that the program has sent lie in a ring: the client may ask for them again. */
struct sf_count sf_line[FDS_MAX];
static u16 line_of[FDS_MAX]; /* whose, + 1; 0: its own number's */
#define ANSWER_MS 30
static u32 mute; /* connections are set up, and nobody has heard of them yet */
#define STAMP_LEAP 2200000u /* ms: above INT_MAX / 1000 */

static struct {
	u8 head[PAGE] __attribute__((aligned(512))),
		tail[PAGE]; /* pages that a write covers in part, as they were before it; direct I/O reads here */
	u64 off;
	u32 has_head, has_tail;
} old;

static u8 kind_of_storage(u64 fd)
{
	return (u32)fd < FDS_MAX ? sf_fd_class[(u32)fd] : F_NONE;
}

static int is_file(u64 fd)
{
	u8 k = kind_of_storage(fd);
	return k == F_FILE || k == F_PROTECTED;
}

static int is_write(u32 nr)
{
	return nr == NR_write || nr == NR_pwrite64 || nr == NR_writev || nr == NR_pwritev || nr == NR_pwritev2;
}

static int is_read(u32 nr)
{
	return nr == NR_read || nr == NR_pread64 || nr == NR_readv || nr == NR_preadv || nr == NR_preadv2;
}

static int is_open(u32 nr)
{
	return nr == NR_open || nr == NR_openat || nr == NR_creat || nr == NR_openat2;
}

static u64 open_flags(u32 nr, const u64 a[6])
{
	u64 flags = nr == NR_open ? a[1] : nr == NR_openat ? a[2] : nr == NR_creat ? 01101 : 0;
	if (nr == NR_openat2 && sf_user_bytes(&flags, a[2], sizeof flags) < 0) /* struct open_how */
		return 0;
	return flags;
}

static int is_on_disk(u64 fd)
{
	u8 k = kind_of_storage(fd);
	return is_file(fd) || k == F_DIRECTORY;
}

/* What the program's processes hand each other: the secondary's holds the same. */
static int is_channel(u64 fd)
{
	u8 k = kind_of_storage(fd);
	return k == F_PIPE || k == F_COUNTER || k == F_SEMAPHORE || k == F_DUPLEX || k == F_TIMER || k == F_WATCHES;
}

/* Those of channel.c. */
static int is_message_channel(u64 fd)
{
	u8 k = kind_of_storage(fd);
	return k == F_COUNTER || k == F_SEMAPHORE || k == F_DUPLEX;
}

static int is_socket_storage(u64 fd)
{
	u8 k = kind_of_storage(fd);
	return k == F_SOCKET || k == F_LISTEN || k == F_CONNECTION || k == F_OUTGOING;
}

/* Calls whose first argument is a descriptor, and which both sites make. */
static int is_both_fd(u32 nr, const u64 a[6])
{
	switch (nr) {
	case NR_lseek: return is_file(a[0]);
	case NR_flock:
	case NR_fsync:
	case NR_fdatasync:
	case NR_ftruncate:
	case NR_fchmod:
	case NR_fchown:
	case NR_fsetxattr:
	case NR_fremovexattr:
	case NR_readahead:
	case NR_fadvise64:
	case NR_sync_file_range:
	case NR_fallocate:
	case NR_syncfs:
	case NR_fchdir: return is_on_disk(a[0]);
	case NR_fcntl: /* F_SETFD, F_SETFL, F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW */
		return is_on_disk(a[0]) &&
		       ((u32)a[1] == 2 || (u32)a[1] == 4 || (u32)a[1] == 6 || (u32)a[1] == 7 || (u32)a[1] == 37 || (u32)a[1] == 38);
	}
	return 0;
}

/* Calls that change a name: which arguments are a directory and a path, for the ledger. */
static const struct {
	u16 nr;
	signed char dir1, path1, dir2, path2;
} names[] = {
	{ NR_unlink, -1, 0, -1, -1 },      { NR_unlinkat, 0, 1, -1, -1 },      { NR_rename, -1, 0, -1, 1 },
	{ NR_renameat, 0, 1, 2, 3 },       { NR_renameat2, 0, 1, 2, 3 },       { NR_link, -1, 0, -1, 1 },
	{ NR_linkat, 0, 1, 2, 3 },         { NR_mkdir, -1, 0, -1, -1 },        { NR_mkdirat, 0, 1, -1, -1 },
	{ NR_rmdir, -1, 0, -1, -1 },       { NR_symlink, -1, 1, -1, -1 },      { NR_symlinkat, 1, 2, -1, -1 },
	{ NR_chmod, -1, 0, -1, -1 },       { NR_fchmodat, 0, 1, -1, -1 },      { NR_chown, -1, 0, -1, -1 },
	{ NR_lchown, -1, 0, -1, -1 },      { NR_fchownat, 0, 1, -1, -1 },      { NR_truncate, -1, 0, -1, -1 },
	{ NR_utime, -1, 0, -1, -1 },       { NR_utimes, -1, 0, -1, -1 },       { NR_utimensat, 0, 1, -1, -1 },
	{ NR_futimesat, 0, 1, -1, -1 },    { NR_mknod, -1, 0, -1, -1 },        { NR_mknodat, 0, 1, -1, -1 },
	{ NR_chdir, -1, 0, -1, -1 },       { NR_setxattr, -1, 0, -1, -1 },     { NR_lsetxattr, -1, 0, -1, -1 },
	{ NR_removexattr, -1, 0, -1, -1 }, { NR_lremovexattr, -1, 0, -1, -1 }, { NR_fchmodat2, 0, 1, -1, -1 },
};

static int name_row(u32 nr)
{
	for (u32 i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].nr == nr)
			return (int)i;
	return -1;
}

static int is_protected_path(const char *path, u64 len)
{
	const char *p = PAIR->prefixes;
	while (*p) {
		u64 n = sf_strlen(p);
		if (len >= n && memcmp(path, p, n) == 0 && (len == n || path[n] == '/'))
			return 1;
		p += n + 1;
	}
	return 0;
}

/* What the kernel makes up as it is read is the primary's, like a socket. */
static int is_made_up(s64 fd)
{
	u64 fs[15];
	if (sys2(NR_fstatfs, fd, fs) < 0)
		return 1;
	switch (fs[0]) {
	case 0x9fa0:
	case 0x62656572:
	case 0x63677270:
	case 0x27e0eb:
	case 0x64626720:
	case 0x74726163:
	case 0x1cd1:
	case 0xcafe4a11:
	case 0x73636673: /* proc, sysfs, cgroup2, cgroup, debugfs, tracefs, devpts, bpf, securityfs */ return 1;
	}
	return 0;
}

/* By a descriptor that may read, and without direct I/O. */
static s64 page_opened(u64 fd, u64 page, u8 *to)
{
	char link[32] = "/proc/self/fd/";
	u32 at = 14, v = (u32)fd, k = 0;
	char d[12];
	do
		d[k++] = (char)('0' + v % 10);
	while (v /= 10);
	while (k)
		link[at++] = d[--k];
	link[at] = 0;
	s64 own = sys3(NR_open, link, 02000000 /* O_RDONLY|O_CLOEXEC */, 0);
	if (own < 0)
		return own;
	s64 n = sys4(NR_pread64, own, to, PAGE, page * PAGE);
	sys1(NR_close, own);
	return n;
}

/* By the launcher: the program has no descriptor left (RLIMIT_NOFILE), or has given up the right to read (setuid(2)). */
static s64 page_of_launcher(u64 fd, u64 page, u8 *to)
{
	const s64 n = sf_rpc(SF_RPC_PAIR_PAGE, (u32)fd, page, 0, 0, me.out);
	if (n > 0 && n <= (s64)PAGE)
		memcpy(to, PAYLOAD + me.out, (u64)n);
	return n;
}

/* What the ledgers are to hold against what they have. Who cannot say what a page was does not guess: zeros would blame a sound disk. */
static void page_before(u64 fd, u64 page, u8 *to)
{
	struct stat st;
	memset(to, 0, PAGE);
	s64 n = sys4(NR_pread64, (u32)fd, to, PAGE, page * PAGE);
	if (n == -EBADF || n == -EINVAL) /* open for writing alone; direct I/O with blocks that are larger */
		n = page_opened(fd, page, to);
	if (n >= 0 || (sys2(NR_fstat, (u32)fd, &st) == 0 && (u64)st.size <= page * PAGE))
		return;
	n = page_of_launcher(fd, page, to);
	if (n < 0)
		sf_end(SF_E_REFUSED, SF_NR_PAIR_UNREAD, n, me.regs);
}

u64 sf_line_of(u64 fd)
{
	return fd < FDS_MAX && line_of[fd] ? line_of[fd] - 1u : fd;
}

static int is_first_of_line(u64 fd)
{
	for (u64 i = 0; i < fd; i++)
		if (sf_fd_class[i] == F_CONNECTION && sf_line_of(i) == sf_line_of(fd))
			return 0;
	return 1;
}

/* A connection that is new here: the line of its number, or one that is free where another connection's descriptors have that. */
void sf_line_begins(u64 fd)
{
	static u8 taken[FDS_MAX];
	u64 line = fd;
	memset(taken, 0, sizeof taken);
	for (u64 i = 0; i < FDS_MAX; i++)
		if (i != fd && sf_fd_class[i] == F_CONNECTION)
			taken[sf_line_of(i)] = 1;
	for (u64 i = 0; taken[line] && i < FDS_MAX; i++)
		line = i;
	line_of[fd] = (u16)(line + 1);
	sf_line[line].got = sf_line[line].sent = 0;
	memset(&sf_line[line].l, 0, sizeof sf_line[line].l);
	sf_line[line].born = sf_now();
}

void sf_line_copied(u64 fd, u64 to)
{
	line_of[to] = (u16)(sf_line_of(fd) + 1);
}

static u64 vector_bytes(u64 at, u64 n)
{
	u64 v[2], sum = 0;
	for (u64 i = 0; i < n && i < 1024; i++) {
		if (sf_user_bytes(v, at + 16 * i, sizeof v) < 0)
			break;
		sum += v[1];
	}
	return sum;
}

static u64 write_bytes(u32 nr, const u64 a[6])
{
	return nr == NR_write || nr == NR_pwrite64 ? a[2] : vector_bytes(a[1], a[2]);
}

/* open(2) and pwrite(2): such a file, or RWF_APPEND, has bytes added at its end, whatever place the call names. */
static int appends(u32 nr, const u64 a[6])
{
	if (!is_write(nr))
		return 0;
	const u64 flags = nr == NR_pwritev2 ? a[5] : 0;
	if (flags & 0x30 /* RWF_APPEND, RWF_NOAPPEND */)
		return (flags & 0x10) != 0;
	s64 of = sys2(NR_fcntl, (u32)a[0], 3 /* F_GETFL */);
	return of > 0 && (of & O_APPEND);
}

static u64 place_of(u32 nr, const u64 a[6])
{
	struct stat st;
	if (appends(nr, a) && sys2(NR_fstat, (u32)a[0], &st) == 0)
		return (u64)st.size;
	if (nr == NR_pwrite64 || nr == NR_pread64 || nr == NR_pwritev || nr == NR_preadv ||
	    ((nr == NR_pwritev2 || nr == NR_preadv2) && a[3] != ~0ull))
		return a[3];
	s64 at = sys3(NR_lseek, (u32)a[0], 0, 1 /* SEEK_CUR */);
	return at < 0 ? 0 : (u64)at;
}

/* A read at a place of its own changes nothing at either site, so the primary makes it before the secondary has claimed it. What it has
 * brought is still compared before the program has it (sf_pair_wait), and so is the claim. Not where processes take turns: the
 * turn would be held for as long as the other site computes. Nor with threads: a primary that has read into the wrong place would have
 * gone on to another thread's event before it is called back. */
static int reads_at_once(u32 nr, const u64 a[6])
{
	return (nr == NR_pread64 || nr == NR_preadv || (nr == NR_preadv2 && a[3] != ~0ull)) && kind_of_storage(a[0]) == F_PROTECTED &&
	       !sf_pair_has_others() && !app.threads;
}

/* 1: nobody makes the call; every replica gets the errno. It is one that the manual tells programs to do without after. */
static int is_denied(u32 nr, const u64 a[6], int *err)
{
	const int shown = unlikely(app.shown_n) ? sf_shown_answers(nr, a) : -1;
	*err = 0;
	if (nr == NR_copy_file_range && (is_file(a[0]) || is_file(a[2])))
		*err = EXDEV;
	if (nr == NR_ioctl && ((u32)a[1] == 0x40049409 || (u32)a[1] == 0x4020940d || (u32)a[1] == 0xc0189436)) /* FICLONE,
	                                                                             FICLONERANGE, FIDEDUPERANGE */
		*err = EOPNOTSUPP;
	if (nr == NR_mmap && (a[3] & 3) == 3 /* MAP_SHARED_VALIDATE */ && (a[3] & 0x80000 /* MAP_SYNC */) && is_file(a[4]))
		*err = EOPNOTSUPP; /* as of a device that is no memory (mmap(2)) */
	if ((nr == NR_preadv2 || nr == NR_pwritev2) && (a[5] & 8 /* RWF_NOWAIT */) && is_file(a[0]))
		*err = EOPNOTSUPP; /* preadv2(2). What is in the page cache is each site's own */
	if (nr == NR_lseek && ((u32)a[2] == 3 /* SEEK_DATA */ || (u32)a[2] == 4 /* SEEK_HOLE */) && is_file(a[0]))
		*err = EINVAL; /* lseek(2): a kernel before 3.1. Where the holes are is each disk's own */
	if (is_open(nr) && (open_flags(nr, a) & O_TMPFILE) == O_TMPFILE)
		*err = EOPNOTSUPP; /* open(2): the file system has no such files. The ledger knows files by name */
	if (shown > 0)
		*err = shown;
	return *err || shown == 0;
}

const struct sf_call *sf_pair_row(u32 nr, const u64 a[6], const struct sf_call *c, struct sf_call *own)
{
	int err;
	if (likely(!is_denied(nr, a, &err))) {
		const int plans = unlikely(sf_parts_call(nr)) && sf_parts_are(nr, a);
		if (!plans && !reads_at_once(nr, a))
			return c;
		if (c != own)
			*own = *c;
		own->class = SF_QUERY;
		if (plans)
			own->handler = SF_H_generic; /* the leader's plan alone */
		return own;
	}
	if (c != own)
		*own = *c;
	own->class = SF_DENY;
	own->handler = SF_H_generic; /* what is memory every replica makes by itself otherwise (calls.c, how) */
	own->err = (int16_t)err;
	return own;
}

/* A file of a tmpfs that the program has made, and maps so that its processes share it. */
int sf_pair_maps(u32 nr, const u64 a[6])
{
	return nr == NR_mmap && (a[3] & 0x23) == 1 /* MAP_SHARED, not anonymous */ && kind_of_storage(a[4]) == F_FILE &&
	       sf_segment_of_site((u32)a[4]);
}

/* What a pair cannot keep equal is refused before it happens: 0, or what to call it. */
u32 sf_pair_refuses(u32 nr, const u64 a[6])
{
	if (me.role == SF_RERUN) /* what is in the log was not refused */
		return 0;
	switch (nr) {
	case NR_mmap:
		if ((a[3] & 0x20 /* MAP_ANONYMOUS */) || !is_file(a[4]) || sf_pair_maps(nr, a) || sf_parts_are(nr, a))
			return 0;
		return kind_of_storage(a[4]) == F_PROTECTED || ((a[3] & 3) != 2 /* MAP_PRIVATE */ && (a[2] & 2 /* PROT_WRITE */))
			       ? SF_NR_PAIR_MAP
			       : 0;
	case NR_fallocate: return kind_of_storage(a[0]) == F_PROTECTED && (u32)a[1] > 1 ? SF_NR_PAIR_HOLE : 0;
	case NR_truncate: return a[1] % PAGE ? SF_NR_PAIR_TRUNCATE : 0;
	case NR_chroot: return SF_NR_PAIR_ROOT;
	}
	if (is_write(nr) && is_file(a[0]) && write_bytes(nr, a) > WRITE_MAX)
		return SF_NR_PAIR_WRITE;
	return 0;
}

/* Both sites map a file that they only read as if it were private: each has its own. */
void sf_pair_private(u32 nr, u64 a[6])
{
	/* A re-run knows no descriptors: what is mapped shared and has a file is one that is only read. */
	if (nr == NR_mmap && !(a[3] & 0x20) && !sf_pair_maps(nr, a) && (is_file(a[4]) || me.role == SF_RERUN) && (a[3] & 3) != 2)
		a[3] = (a[3] & ~3ull) | 2;
}

/* The file that a call changes: 0 if it is none that may be mapped. `made`: what it has returned, or negative before it. */
static int changes_file(u32 nr, const u64 a[6], s64 made, struct stat *st)
{
	static char name[4096];
	if (is_write(nr) || nr == NR_ftruncate)
		return kind_of_storage(a[0]) == F_PROTECTED && sys2(NR_fstat, (u32)a[0], st) == 0;
	if (is_open(nr) && made >= 0)
		return (open_flags(nr, a) & O_TRUNC) && sys2(NR_fstat, (u32)made, st) == 0;
	const int opens = is_open(nr) && (open_flags(nr, a) & O_TRUNC), at = nr == NR_openat || nr == NR_openat2;
	if ((!opens && nr != NR_truncate) || sf_user_string(name, a[at], sizeof name) < 0)
		return 0;
	return sys4(NR_newfstatat, at ? (s64)(s32)a[0] : -100 /* AT_FDCWD */, name, st, 0) == 0;
}

/* The primary, with its turn: what another process has mapped would not show the change. */
static COLD void shown_before(u32 nr, const u64 a[6])
{
	struct stat st;
	if (changes_file(nr, a, -1, &st) && sf_shown_elsewhere(&st))
		sf_end(SF_E_REFUSED, SF_NR_PAIR_SHOWN, 0, me.regs);
}

/* The primary, before a call of its own. */
void sf_pair_before(u32 nr, const u64 a[6])
{
	old.has_head = old.has_tail = 0;
	sf_ipc_before(nr, a);
	if (unlikely(sf_pair_has_others()))
		shown_before(nr, a);
	if (is_write(nr) && kind_of_storage(a[0]) == F_PROTECTED) {
		u64 n = write_bytes(nr, a), end;
		old.off = place_of(nr, a);
		end = old.off + n;
		if (n && (old.off % PAGE || (end % PAGE && end / PAGE == old.off / PAGE))) {
			page_before(a[0], old.off / PAGE, old.head);
			old.has_head = 1;
		}
		if (n && end % PAGE && !(old.has_head && end / PAGE == old.off / PAGE)) {
			page_before(a[0], end / PAGE, old.tail);
			old.has_tail = 1;
		}
	} else if (nr == NR_ftruncate && kind_of_storage(a[0]) == F_PROTECTED && a[1] % PAGE) {
		page_before(a[0], a[1] / PAGE, old.head);
		old.has_head = 1;
	}
}

static struct sf_note *note_storage(struct sf_event *e, u32 kind, u64 fd)
{
	struct sf_note *n = NOTE(e->seq);
	n->kind = kind;
	n->fd = (s32)fd;
	return n;
}

static void add_bytes(struct sf_result *r, struct sf_note *n, const void *p, u64 len)
{
	if (!n->extra_len)
		n->extra_off = r->out_len;
	sf_result_bytes(r, p, (u32)len);
	n->extra_len += (u32)len;
}

static void add_vector(struct sf_result *r, struct sf_note *n, u64 at, u64 count, u64 left)
{
	u64 v[2];
	for (u64 i = 0; i < count && left; i++) {
		if (sf_user_bytes(v, at + 16 * i, sizeof v) < 0)
			return;
		u64 l = v[1] < left ? v[1] : left;
		add_bytes(r, n, (const void *)v[0], l);
		left -= l;
	}
}

/* A directory as a name, then the path in it; both end with a NUL. */
static void add_name(struct sf_result *r, struct sf_note *n, const u64 a[6], int dir, int path)
{
	static char text[4096];
	s64 len;
	if (dir >= 0 && (s32)a[dir] != -100 /* AT_FDCWD */)
		len = sf_fd_name((u32)a[dir], text, sizeof text - 1);
	else
		len = sys3(NR_readlink, "/proc/self/cwd", text, sizeof text - 1);
	text[len > 0 ? len : 0] = 0;
	add_bytes(r, n, text, (len > 0 ? (u64)len : 0) + 1);
	len = sf_user_string(text, a[path], sizeof text);
	text[len > 0 ? len : 0] = 0;
	add_bytes(r, n, text, (len > 0 ? (u64)len : 0) + 1);
}

static u8 class_of(s64 fd, const char *name, s64 len)
{
	struct stat st;
	if ((u64)fd >= FDS_MAX || sys2(NR_fstat, fd, &st) < 0 || is_made_up(fd))
		return F_NONE;
	if ((st.mode & S_IFMT) == S_IFDIR)
		return F_DIRECTORY;
	if ((st.mode & S_IFMT) != S_IFREG)
		return F_NONE;
	return len > 0 && is_protected_path(name, (u64)len) ? F_PROTECTED : F_FILE;
}

static u8 class_of_device(s64 fd)
{
	struct stat st;
	if (sys2(NR_fstat, fd, &st) < 0 || (st.mode & S_IFMT) != 0020000 /* S_IFCHR */ || st.rdev >> 8 != 1)
		return F_FOREIGN;
	u64 minor = st.rdev & 0xff;
	return minor == 3 || minor == 5 || (minor >= 7 && minor <= 9) ? F_DEVICE : F_FOREIGN;
}

/* ---- sockets ---- */

#define IPPROTO_TCP 6
enum {
	TCP_MAXSEG = 2,
	TCP_INFO = 11,
	TCP_REPAIR = 19,
	TCP_REPAIR_QUEUE,
	TCP_QUEUE_SEQ,
	TCP_REPAIR_OPTIONS,
	TCP_TIMESTAMP = 24,
	TCP_REPAIR_WINDOW = 29
};
enum { NO_QUEUE, RECV_QUEUE, SEND_QUEUE };
enum { SO_SNDBUF = 7, SO_SNDBUFFORCE = 32, SO_DOMAIN = 39 };

static s64 get_option(u64 fd, u32 level, u32 name, void *v, u32 n)
{
	return sys6(NR_getsockopt, fd, level, name, v, &n, 0);
}

static s64 set_option(u64 fd, u32 level, u32 name, const void *v, u32 n)
{
	return sys6(NR_setsockopt, fd, level, name, v, n, 0);
}

static s64 set_word(u64 fd, u32 level, u32 name, u32 v)
{
	return set_option(fd, level, name, &v, sizeof v);
}

static int queue_at(u64 fd, u32 queue, u32 *at)
{
	return set_word(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, queue) == 0 && get_option(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, at, 4) == 0;
}

/* Who has given up root may not repair a connection (CAP_NET_ADMIN), nor bind to a low port. The launcher may, for the same socket. */
static s64 set_by_right(u64 fd, u32 level, u32 name, u32 v)
{
	static u8 alone; /* the launcher may not either */
	s64 r = set_word(fd, level, name, v);
	if (likely(r != -EPERM) || alone)
		return r;
	r = sf_rpc(SF_RPC_PAIR_SET, fd, level, name, v, 0);
	alone = r == -EPERM;
	return r;
}

static s64 bind_by_right(u64 fd, const u8 *address, u32 len)
{
	const s64 r = sys3(NR_bind, fd, address, len);
	return r == -EACCES ? sf_rpc(SF_RPC_PAIR_BIND, fd, (u64)address, len, 0, 0) : r;
}

/* With or without a probe. The kernel has taken SO_REUSEADDR away then, which a connection has of its listener: it would keep a
 * later listener from the port, in TIME_WAIT as well (tcp.c, TCP_REPAIR_OFF). */
static void repaired(u64 fd, u32 off)
{
	set_by_right(fd, IPPROTO_TCP, TCP_REPAIR, off);
	set_word(fd, 1 /* SOL_SOCKET */, 2 /* SO_REUSEADDR */, 1);
}

/* The program is about to do nothing with the connection meanwhile. Where nobody may repair a connection nothing is learnt. The
 * peer's bytes may come in the meantime. */
u64 sf_learn(u64 fd, struct sf_line *l, u8 *unacknowledged)
{
	u32 len = sizeof l->own, at = 0, again = 0;
	s32 waits = 0;
	s64 open = 0;
	u8 info[8];
	memset(l, 0, sizeof *l);
	if (sys3(NR_getsockname, fd, l->own, &len) < 0 || (l->own[0] != 2 /* AF_INET */ && l->own[0] != 10 /* AF_INET6 */))
		return 0;
	l->own_len = len;
	len = sizeof l->peer;
	if (sys3(NR_getpeername, fd, l->peer, &len) < 0)
		return 0;
	l->peer_len = len;
	if (set_by_right(fd, IPPROTO_TCP, TCP_REPAIR, 1) < 0)
		return 0;
	int ok = queue_at(fd, SEND_QUEUE, &l->sends) && get_option(fd, IPPROTO_TCP, TCP_MAXSEG, &l->segment, 4) == 0;
	if (ok && unacknowledged) {
		open = sys6(NR_recvfrom, fd, unacknowledged, SENT_BYTES, 0x42 /* MSG_PEEK|MSG_DONTWAIT */, 0, 0);
		ok = open < (s64)SENT_BYTES && (open >= 0 || open == -EAGAIN);
		open = open > 0 ? open : 0;
		l->sends -= (u32)open;
	}
	for (u32 tries = 0; ok; tries++) {
		ok = tries < 100 && queue_at(fd, RECV_QUEUE, &at) && sys3(NR_ioctl, fd, 0x541b /* SIOCINQ */, &waits) == 0 &&
		     queue_at(fd, RECV_QUEUE, &again);
		if (at == again)
			break;
	}
	repaired(fd, -1u); /* without a probe */
	ok = ok && get_option(fd, IPPROTO_TCP, TCP_INFO, info, sizeof info) == 0 && info[0] == 1 /* TCP_ESTABLISHED */ &&
	     get_option(fd, IPPROTO_TCP, TCP_TIMESTAMP, &l->stamp, 4) == 0 && set_word(fd, 1 /* SOL_SOCKET */, SO_SNDBUF, SNDBUF) == 0;
	l->gets = at - (u32)waits;
	l->options = info[5];
	l->scales = (info[6] & 15u) | (u32)(info[6] >> 4) << 16;
	l->known = (u32)ok;
	return ok ? (u64)open : 0;
}

static void count_sent(u64 fd, u64 from, u64 n)
{
	fd = sf_line_of(fd);
	while (n) {
		u64 at = sf_line[fd].sent % SENT_BYTES, part = SENT_BYTES - at < n ? SENT_BYTES - at : n;
		if (sf_user_bytes(SENT(fd) + at, from, part) < 0) {
			sf_line[fd].l.known = 0;
			return;
		}
		sf_line[fd].sent += part;
		from += part;
		n -= part;
	}
}

/* `left` bytes of a vector, from where the events before this one of the same call have left it (calls.c, rest_of_call). */
static void for_vector(u64 at, u64 count, u64 left, void (*each)(u64 fd, u64 from, u64 n), u64 fd)
{
	u64 v[2], done = app.done_of_call;
	for (u64 i = 0; i < count && left && sf_user_bytes(v, at + 16 * i, sizeof v) == 0; i++) {
		u64 skip = v[1] < done ? v[1] : done, l = v[1] - skip < left ? v[1] - skip : left;
		done -= skip;
		each(fd, v[0] + skip, l);
		left -= l;
	}
}

/* The end that reads may be closed here already: nobody is to hear of that. */
static void fill(u64 fd, u64 from, u64 n)
{
	static const u64 broken = 1ull << (13 - 1) /* SIGPIPE */, at_once[2] = { 0, 0 };
	if (sys3(NR_write, fd, from, n) == -EPIPE)
		sys4(NR_rt_sigtimedwait, &broken, 0, at_once, 8);
}

/* The secondary: what the program has moved on a connection. One that is half closed cannot be gone on with. */
static void count(u32 nr, const u64 a[6], s64 ret)
{
	const u64 fd = (u32)a[0], line = sf_line_of(fd);
	u64 iov[2];
	if (unlikely(nr == NR_splice || nr == NR_tee || nr == NR_vmsplice) && ret > 0) { /* what has moved is not known here */
		for (u32 i = 0; i < 3; i++)
			if (is_channel(a[i]) || kind_of_storage(a[i]) == F_CONNECTION)
				sf_fd_class[(u32)a[i]] = F_FOREIGN;
		return;
	}
	if (kind_of_storage(fd) == F_PIPE && ret > 0) {
		if (nr == NR_write)
			fill(fd, a[1], (u64)ret);
		else if (is_write(nr))
			for_vector(a[1], a[2], (u64)ret, fill, fd);
		for (s64 n; is_read(nr) && ret > 0 && (n = sys3(NR_read, fd, old.head, ret < (s64)PAGE ? ret : (s64)PAGE)) > 0;)
			ret -= n;
		return;
	}
	if (kind_of_storage(fd) != F_CONNECTION || !sf_line[line].l.known)
		return;
	if (nr == NR_shutdown || (ret == 0 && is_read(nr)) || (ret == 0 && (nr == NR_recvfrom || nr == NR_recvmsg)))
		sf_line[line].l.known = 0;
	if (ret <= 0)
		return;
	if (nr == NR_write || nr == NR_sendto)
		count_sent(fd, a[1], (u64)ret);
	else if (is_write(nr))
		for_vector(a[1], a[2], (u64)ret, count_sent, fd);
	else if (nr == NR_sendmsg && sf_user_bytes(iov, a[1] + 16, sizeof iov) == 0)
		for_vector(iov[0], iov[1], (u64)ret, count_sent, fd);
	else if (nr == NR_sendmsg)
		sf_line[line].l.known = 0;
	else if (is_read(nr) || (nr == NR_recvfrom && !(a[3] & 2 /* MSG_PEEK */)) || (nr == NR_recvmsg && !(a[2] & 2)))
		sf_line[line].got += (u64)ret;
}

/* What has come for a connection and the program has not read: it was acknowledged, and handed over with the program
 * (crates/replica/src/site/handover.rs). For each its number, how much, and the bytes, up to 8; the last number is none. */
#define INPUT_CUT (~0u)
static const u8 *input_of(u64 fd, u32 *len)
{
	const u8 *p = (const u8 *)(SF_SHARED + SF_OFF_HELD);
	*len = 0;
	for (const u32 *h = (const u32 *)p; h[0] != ~0u; h = (const u32 *)p) {
		p += 8;
		if (h[0] == (u32)fd) {
			*len = h[1];
			return p;
		}
		if (h[1] != INPUT_CUT)
			p += ((u64)h[1] + 7) & ~7ull;
	}
	return p;
}

/* Puts it where the program will read it. */
static s64 give_input(u64 fd)
{
	u32 len;
	const u8 *p = input_of(fd, &len);
	while (len) {
		s64 r = sys6(NR_sendto, fd, p, len < 32768 ? len : 32768, 0, 0, 0);
		if (r <= 0)
			return r ? r : -EPIPE;
		p += r;
		len -= (u32)r;
	}
	return 0;
}

/* The secondary's socket becomes the connection that the primary had, with everything that was sent up to `from` behind it:
 * 0, or why not. What is behind that and was sent as well waits for the peer's acknowledgement. */
static s64 stand_in_storage(u64 fd, u64 from)
{
	const struct sf_line *l = &sf_line[sf_line_of(fd)].l;
	u32 next = l->gets + (u32)sf_line[sf_line_of(fd)].got, unread;
	struct {
		u32 code, value;
	} option[4];
	u32 n = 0, window[5];
	s64 r;
	set_word(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, SEND_QUEUE);
	if ((r = set_word(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, l->sends + (u32)from)) < 0)
		return r;
	set_word(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, RECV_QUEUE);
	if ((r = set_word(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, next)) < 0)
		return r;
	if ((r = sys3(NR_connect, fd, l->peer, l->peer_len)) < 0)
		return r;
	option[n].code = 2 /* TCPOPT_MSS */, option[n++].value = l->segment;
	if (l->options & 2)
		option[n].code = 4 /* TCPOPT_SACK_PERM */, option[n++].value = 0;
	if (l->options & 4)
		option[n].code = 3 /* TCPOPT_WINDOW */, option[n++].value = l->scales;
	if (l->options & 1)
		option[n].code = 8 /* TCPOPT_TIMESTAMP */, option[n++].value = 0;
	if ((r = set_option(fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS, option, n * 8)) < 0)
		return r;
	set_word(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, RECV_QUEUE);
	if ((r = give_input(fd)) < 0)
		return r;
	input_of(fd, &unread);
	next += unread;
	/* Later than any that the peer has seen, which it would drop (RFC 7323, 5.3), and by so much that the kernel takes no
	 * round trip from what the peer echoes of the primary's: it drops a difference of INT_MAX / 1000 ms, and would wait
	 * for thrice the outage before it sends again. */
	const u64 age = sf_now() - sf_line[sf_line_of(fd)].born;
	const u32 micro = l->stamp & 1; /* the kernel's mark of a clock in microseconds, not part of the time (Linux 6.7) */
	set_word(fd, IPPROTO_TCP, TCP_TIMESTAMP,
		 ((l->stamp + (micro ? (u32)(age / 1000) + 1000000 : (u32)(age / 1000000) + STAMP_LEAP)) & ~1u) | micro);
	/* snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup: the peer's answer to the probe brings its own. */
	if (get_option(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, window, sizeof window) == 0) {
		window[0] = next - 1;
		window[1] = window[2] = 65535;
		window[3] = 65535;
		window[4] = next;
		set_option(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, window, sizeof window);
	}
	return 0;
}

/* Gives the kernel the bytes that the program has sent from `at` on: 0, or why not. */
static s64 give_sent(u64 fd, u64 at)
{
	while (at < sf_line[sf_line_of(fd)].sent) {
		u64 part = SENT_BYTES - at % SENT_BYTES, left = sf_line[sf_line_of(fd)].sent - at;
		s64 r = sys6(NR_sendto, fd, SENT(sf_line_of(fd)) + at % SENT_BYTES, part < left ? part : left,
			     0x4040 /* DONTWAIT|NOSIGNAL */, 0, 0);
		if (r <= 0)
			return r ? r : -EPIPE;
		at += (u64)r;
	}
	return 0;
}

static u64 oldest_sent(u64 fd)
{
	return sf_line[sf_line_of(fd)].sent < SENT_BYTES ? 0 : sf_line[sf_line_of(fd)].sent - SENT_BYTES;
}

static s64 go_on_with(u64 fd)
{
	const struct sf_line *l = &sf_line[sf_line_of(fd)].l;
	s64 r;
	if ((r = set_by_right(fd, IPPROTO_TCP, TCP_REPAIR, 1)) < 0)
		return r;
	set_by_right(fd, 1, SO_SNDBUFFORCE, 4 * SENT_BYTES);
	if ((r = bind_by_right(fd, l->own, l->own_len)) < 0 || (r = stand_in_storage(fd, oldest_sent(fd))) < 0)
		return r;
	set_word(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, SEND_QUEUE);
	r = give_sent(fd, oldest_sent(fd));
	set_word(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, NO_QUEUE);
	return r;
}

/* Whether the peer has answered the probe. */
static int has_answered(u64 fd)
{
	u32 info[36]; /* up to tcpi_segs_in */
	return get_option(fd, IPPROTO_TCP, TCP_INFO, info, sizeof info) == 0 && info[35] > 0;
}

/* The peer has said what it has. What it lacks counts as sent by this kernel, which has measured no round trip and would wait
 * for 3 s before it sends that again (RFC 6298, 5.7). So the connection is set up once more, from what the peer has, and
 * what it lacks is sent. Packets that come meanwhile are dropped by a filter: an acknowledged byte would be lost. */
static void send_again(u64 fd)
{
	static const struct {
		u16 code;
		u8 jt, jf;
		u32 k;
	} none = { 6 /* BPF_RET|BPF_K */, 0, 0, 0 };
	const struct {
		u64 n;
		const void *p;
	} filter = { 1, &none };
	const u64 nobody[2] = { 0 /* AF_UNSPEC */, 0 };
	s32 lacks = 0, came = 0;
	u32 error, unread;
	input_of(fd, &unread);
	if (set_option(fd, 1 /* SOL_SOCKET */, 26 /* SO_ATTACH_FILTER */, &filter, sizeof filter) < 0)
		return;
	if (sys3(NR_ioctl, fd, 0x5411 /* SIOCOUTQ */, &lacks) == 0 && lacks > 0 && (u64)lacks <= sf_line[sf_line_of(fd)].sent &&
	    sys3(NR_ioctl, fd, 0x541b /* SIOCINQ */, &came) == 0 && (u32)came == unread &&
	    set_by_right(fd, IPPROTO_TCP, TCP_REPAIR, 1) == 0) {
		const u64 from = sf_line[sf_line_of(fd)].sent - (u64)lacks;
		sys3(NR_connect, fd, nobody, sizeof nobody); /* nobody hears of it (tcp(7), TCP_REPAIR) */
		get_option(fd, 1, 4 /* SO_ERROR */, &error, 4);
		stand_in_storage(fd, from);
		set_word(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, NO_QUEUE);
		repaired(fd, -1u); /* without a probe */
		set_word(fd, 1, 27 /* SO_DETACH_FILTER */, 0);
		give_sent(fd, from);
		return;
	}
	set_word(fd, 1, 27, 0);
}

/* The connections that this site goes on with begin to speak: each asks its peer what it has (the probe of tcp(7), TCP_REPAIR).
 * The address has been announced by then: before that the answers would go to the lost primary. Peers that are farther
 * away than ANSWER_MS are not waited for. */
void sf_pair_speak(void)
{
	static u8 waits[FDS_MAX];
	const struct {
		s64 sec, nsec;
	} pause = { 0, 500000 };
	const u64 until = mute ? sf_now() + ANSWER_MS * 1000000ull : 0;
	u32 left = 0;
	for (u64 fd = 0; mute && fd < FDS_MAX; fd++)
		if (sf_fd_class[fd] == F_CONNECTION && sf_line[sf_line_of(fd)].l.known && is_first_of_line(fd)) {
			repaired(fd, 0);
			waits[fd] = sf_line[sf_line_of(fd)].sent > 0;
			left += waits[fd];
		}
	mute = 0;
	while (left && sf_now() < until) {
		for (u64 fd = 0; fd < FDS_MAX; fd++)
			if (waits[fd] && has_answered(fd)) {
				waits[fd] = 0;
				left--;
				send_again(fd);
				set_word(fd, 1, SO_SNDBUF, SNDBUF); /* from here on as on the site that is lost */
			}
		if (left)
			sys2(NR_nanosleep, &pause, 0);
	}
}

/* Of the primary: what it makes that is no file, and what the secondary has to do alike. 1: noted. */
/* Both ends of a pipe, or of a pair of sockets. */
static int note_two(struct sf_event *e, u32 nr, const u64 a[6])
{
	s32 two[2];
	if (sf_user_bytes(two, nr == NR_socketpair ? a[3] : a[0], sizeof two) < 0 || (u32)two[0] >= FDS_MAX || (u32)two[1] >= FDS_MAX)
		return 0;
	sf_fd_class[two[0]] = sf_fd_class[two[1]] = nr == NR_socketpair ? F_DUPLEX : F_PIPE;
	struct sf_note *n = note_storage(e, SF_N_NEW, (u32)two[0]);
	n->class = sf_fd_class[two[0]];
	n->len = (u32)two[1] + 1;
	return 1;
}

/* A call that changes what a descriptor of the kernel's is. 0: it is none that both sites have. */
static int note_state(struct sf_event *e, u32 nr, const u64 a[6])
{
	switch (nr) {
	case NR_connect:
		if (!is_socket_storage(a[0]))
			return 0;
		sf_fd_class[(u32)a[0]] = F_OUTGOING;
		note_storage(e, SF_N_STATE, a[0])->class = F_OUTGOING;
		return 1;
	case NR_bind:
	case NR_listen:
	case NR_setsockopt:
		if (!is_socket_storage(a[0]))
			return 0;
		if (nr == NR_listen) {
			sf_fd_class[(u32)a[0]] = F_LISTEN;
			sf_line[(u32)a[0]].backlog = (u32)a[1];
		}
		note_storage(e, SF_N_STATE, a[0])->class = sf_fd_class[(u32)a[0]];
		return 1;
	case NR_epoll_ctl:
		if (kind_of_storage(a[0]) != F_POLL)
			return 0;
		note_storage(e, SF_N_STATE, a[0])->class = F_POLL;
		return 1;
	case NR_timerfd_settime:
	case NR_read:
	case NR_readv:
		if (kind_of_storage(a[0]) != F_TIMER)
			return 0;
		note_storage(e, SF_N_STATE, a[0])->class = F_TIMER;
		NOTE(e->seq)->off = sf_alarm_remains(a[0]);
		return 1;
	case NR_inotify_add_watch:
	case NR_inotify_rm_watch:
		if (kind_of_storage(a[0]) != F_WATCHES)
			return 0;
		note_storage(e, SF_N_STATE, a[0])->class = F_WATCHES;
		return 1;
	case NR_fcntl: /* F_ADD_SEALS; F_SETFD, F_SETFL */
		if ((u32)a[1] == 1033 && is_file(a[0])) {
			note_storage(e, SF_N_OTHER, a[0])->class = kind_of_storage(a[0]);
			return 1;
		}
		if (((u32)a[1] != 2 && (u32)a[1] != 4) ||
		    (!is_socket_storage(a[0]) && kind_of_storage(a[0]) != F_POLL && kind_of_storage(a[0]) != F_DEVICE &&
		     kind_of_storage(a[0]) != F_SIGNALS && !is_channel(a[0]) && !(kind_of_storage(a[0]) == F_STREAM && (u32)a[1] == 2)))
			return 0;
		note_storage(e, SF_N_STATE, a[0])->class = sf_fd_class[(u32)a[0]];
		return 1;
	case NR_ioctl: /* FIONCLEX, FIOCLEX, FIONBIO */
		if (((u32)a[1] != 0x5450 && (u32)a[1] != 0x5451 && (u32)a[1] != 0x5421) || (!is_socket_storage(a[0]) && !is_channel(a[0])))
			return 0;
		note_storage(e, SF_N_STATE, a[0])->class = sf_fd_class[(u32)a[0]];
		return 1;
	default: return 0;
	}
}

static int note_kernel(struct sf_event *e, struct sf_result *r, u32 nr, const u64 a[6], s64 ret)
{
	u8 k = F_FOREIGN;
	if (ret < 0 && !(nr == NR_connect && ret == -EINPROGRESS))
		return 0;
	switch (nr) {
	case NR_socket: k = F_SOCKET; break;
	case NR_accept:
	case NR_accept4: k = F_CONNECTION; break;
	case NR_epoll_create:
	case NR_epoll_create1: k = F_POLL; break;
	case NR_eventfd:
	case NR_eventfd2: k = nr == NR_eventfd2 && (a[1] & 1 /* EFD_SEMAPHORE */) ? F_SEMAPHORE : F_COUNTER; break;
	case NR_signalfd:
	case NR_signalfd4: k = F_SIGNALS; break;
	case NR_timerfd_create: k = F_TIMER; break;
	case NR_inotify_init:
	case NR_inotify_init1: k = F_WATCHES; break;
	case NR_memfd_create: k = F_FILE; break; /* which nobody else can open */
	case NR_pipe:
	case NR_pipe2:
	case NR_socketpair: return note_two(e, nr, a);
	case NR_inotify_add_watch: sf_watch_added((u32)a[0], ret); return note_state(e, nr, a);
	default: return note_state(e, nr, a);
	}
	if ((u64)ret >= FDS_MAX)
		return 0;
	sf_fd_class[ret] = k;
	sf_watches_begin((u64)ret, 0);
	note_storage(e, SF_N_NEW, (u64)ret)->class = k;
	if (k == F_CONNECTION) {
		static struct sf_line l;
		sf_learn((u64)ret, &l, NULL);
		add_bytes(r, NOTE(e->seq), &l, sizeof l);
	}
	return 1;
}

static int copies_descriptor(u32 nr, const u64 a[6])
{
	return nr == NR_dup || nr == NR_dup2 || nr == NR_dup3 || (nr == NR_fcntl && ((u32)a[1] == 0 || (u32)a[1] == 1030));
}

static int comes_of_names(u32 nr, s64 ret)
{
	return ret >= 0 && name_row(nr) >= 0;
}

/* The primary, after a call of its own and before its result is published: what the secondary and the
 * ledgers have to know of it, behind the bytes that the call brought. */
static void note_open(struct sf_event *e, struct sf_result *r, u32 nr, const u64 a[6], s64 ret)
{
	static char name[4096];
	struct sf_note *n = NOTE(e->seq);
	s64 len = sf_fd_name((u64)ret, name, sizeof name - 1);
	u8 k = class_of(ret, name, len);
	if (k == F_NONE && (u64)ret < FDS_MAX) {
		note_storage(e, SF_N_NEW, (u64)ret)->class = sf_fd_class[ret] = class_of_device(ret);
		return;
	}
	if ((u64)ret < FDS_MAX)
		sf_fd_class[ret] = k;
	note_storage(e, SF_N_OPEN, (u64)ret)->class = k;
	struct stat st;
	n->len = sys2(NR_fstat, ret, &st) == 0 ? (u64)st.size : 0;
	n->off = open_flags(nr, a);
	name[len > 0 ? len : 0] = 0;
	add_bytes(r, n, name, (u64)(len > 0 ? len : 0) + 1);
}

static void note_copy(struct sf_event *e, const u64 a[6], s64 ret)
{
	struct sf_note *n = NOTE(e->seq);
	if (kind_of_storage(a[0]) == F_NONE && sf_fd_class[ret] == F_NONE)
		return;
	note_storage(e, SF_N_DUP, (u64)ret)->len = (u32)a[0];
	n->class = sf_fd_class[ret] = kind_of_storage(a[0]);
	sf_watches_copied((u32)a[0], (u64)ret);
}

static void note_write(struct sf_event *e, struct sf_result *r, u32 nr, const u64 a[6], s64 ret)
{
	struct sf_note *n = NOTE(e->seq);
	note_storage(e, SF_N_WRITE, a[0])->class = kind_of_storage(a[0]);
	if (ret <= 0 || kind_of_storage(a[0]) != F_PROTECTED)
		return;
	n->off = old.off;
	n->len = (u64)ret;
	n->parts = old.has_head | old.has_tail << 1;
	const u64 end = old.off + (u64)ret;
	if ((u64)ret < write_bytes(nr, a)) { /* it ends elsewhere than where old.tail was looked at */
		old.has_tail = end % PAGE && !(old.has_head && end / PAGE == old.off / PAGE);
		if (old.has_tail)
			page_before(a[0], end / PAGE, old.tail);
		n->parts = old.has_head | old.has_tail * 6;
	}
	if (old.has_head)
		add_bytes(r, n, old.head, PAGE);
	if (old.has_tail)
		add_bytes(r, n, old.tail, PAGE);
	if (nr == NR_write || nr == NR_pwrite64)
		add_bytes(r, n, (const void *)a[1], (u64)ret);
	else
		add_vector(r, n, a[1], a[2], (u64)ret);
}

static void note_both(struct sf_event *e, struct sf_result *r, u32 nr, const u64 a[6], s64 ret)
{
	struct sf_note *n = NOTE(e->seq);
	int syncs = nr == NR_fsync || nr == NR_fdatasync || nr == NR_syncfs;
	note_storage(e, syncs ? SF_N_SYNC : nr == NR_ftruncate ? SF_N_TRUNCATE : nr == NR_fallocate ? SF_N_ALLOCATE : SF_N_OTHER, a[0]);
	n->class = kind_of_storage(a[0]);
	n->off = nr == NR_ftruncate ? a[1] : a[2];
	n->len = nr == NR_fallocate && !(u32)a[1] ? a[3] : 0;
	if (nr == NR_ftruncate && old.has_head && ret == 0) {
		n->parts = 1;
		add_bytes(r, n, old.head, PAGE);
	}
}

/* What the program's mappings show of a call that was made, at `off` if it is a write (shown.c). */
static COLD void shown_after(u32 nr, const u64 a[6], s64 ret, u64 off)
{
	struct stat st;
	if (ret < 0 || !changes_file(nr, a, ret, &st))
		memset(&st, 0, sizeof st);
	sf_shown_of(&st, is_write(nr) ? off : nr == NR_ftruncate || nr == NR_truncate ? a[1] : 0);
	if (!st.ino)
		return;
	if (nr == NR_write || nr == NR_pwrite64)
		sf_shown_bytes(a[0], a[1], (u64)ret);
	else if (is_write(nr))
		for_vector(a[1], a[2], (u64)ret, sf_shown_bytes, a[0]);
	else
		sf_shown_bytes(a[0], ~0ull, ~0ull >> 1);
}

void sf_pair_note(struct sf_event *e, struct sf_result *r, u32 nr, const u64 a[6], s64 ret)
{
	struct sf_note *n = NOTE(e->seq);
	n->kind = 0;
	n->extra_len = n->parts = n->class = 0;
	n->off = n->len = 0;
	n->seq = e->seq;
	if (unlikely(app.shown_n)) {
		shown_after(nr, a, ret, old.off);
		sf_shown_tells(r);
	}
	if (is_open(nr) && ret >= 0) {
		note_open(e, r, nr, a, ret);
	} else if (nr == NR_close && kind_of_storage(a[0]) != F_NONE) {
		note_storage(e, SF_N_CLOSE, a[0])->class = kind_of_storage(a[0]);
		sf_fd_class[(u32)a[0]] = F_NONE;
	} else if (copies_descriptor(nr, a) && ret >= 0 && (u64)ret < FDS_MAX) {
		note_copy(e, a, ret);
	} else if (is_read(nr) && is_file(a[0])) {
		note_storage(e, SF_N_READ, a[0])->class = kind_of_storage(a[0]);
		n->off = place_of(nr, a);
		if (ret > 0 && (nr == NR_read || nr == NR_readv || (nr == NR_preadv2 && a[3] == ~0ull)))
			n->off -= (u64)ret;
		n->len = ret > 0 ? (u64)ret : 0;
	} else if (is_write(nr) && is_file(a[0])) {
		note_write(e, r, nr, a, ret);
	} else if (is_both_fd(nr, a)) {
		note_both(e, r, nr, a, ret);
	} else if (nr == NR_sync || nr == NR_umask) {
		note_storage(e, nr == NR_sync ? SF_N_SYNC : SF_N_OTHER, ~0ull);
	} else if (nr == NR_close_range && ret == 0) {
		note_storage(e, SF_N_CLOSE, ~0ull);
		n->off = (u32)a[0];
		n->len = (u32)a[1];
		for (u64 fd = (u32)a[0]; !(a[2] & 4) && fd <= (u32)a[1] && fd < FDS_MAX; fd++)
			sf_fd_class[fd] = F_NONE;
	} else if (nr == NR_recvmsg && ret >= 0) {
		struct sf_came came[SF_CAME_MAX];
		const u32 got = sf_channel_came(a[1], kind_of_storage(a[0]) == F_DUPLEX, came);
		if (got)
			add_bytes(r, n, came, got * sizeof *came);
	} else if (note_kernel(e, r, nr, a, ret)) {
		return;
	} else if (comes_of_names(nr, ret)) {
		int i = name_row(nr);
		note_storage(e, SF_N_NAME, ~0ull)->off = nr;
		n->len = nr == NR_truncate ? a[1] : nr == NR_renameat2 || nr == NR_linkat ? (u32)a[4] : 0;
		add_name(r, n, a, names[i].dir1, names[i].path1);
		if (names[i].path2 >= 0)
			add_name(r, n, a, names[i].dir2, names[i].path2);
	}
}

/* The secondary's own call ended otherwise than the log says. 1: it may. */
static int may_end_so(struct sf_event *e, u32 nr, s64 own, s64 ret, u64 fd)
{
	return sf_rpc(SF_RPC_PAIR_DIFFERS, e->seq, nr, (u64)own, (u64)ret, fd) == 0;
}

u64 sf_closes_on_exec(s64 fd)
{
	return sys2(NR_fcntl, fd, 1 /* F_GETFD */) & 1 ? 02000000 : 0;
}

/* The secondary has a descriptor of its own, and puts it where the primary's is. */
static int put_at_storage(s64 own, s64 want, u64 cloexec)
{
	if (own == want)
		return 1;
	s64 r = sys3(NR_dup3, own, want, cloexec & 02000000);
	sys1(NR_close, own);
	return r == want;
}

/* The secondary makes something that it will need when it leads. */
static int follow_new(struct sf_event *e, u32 nr, const u64 a[6], const struct sf_result *r, const struct sf_note *n)
{
	const u64 call[7] = { nr, a[0], a[1], a[2], a[3], a[4], a[5] };
	u32 domain = 0;
	s64 own;
	sf_fd_class[(u32)n->fd] = (u8)n->class;
	sf_watches_begin((u32)n->fd, 0);
	if (n->class == F_PIPE || n->class == F_DUPLEX) {
		s32 two[2];
		own = n->class == F_DUPLEX ? sys4(NR_socketpair, a[0], a[1], a[2], two) : sys2(NR_pipe2, two, nr == NR_pipe2 ? a[1] : 0);
		if (own < 0)
			return may_end_so(e, nr, own, r->ret, (u32)n->fd);
		/* Out of the way first: each number may be the other end's. */
		s64 high[2] = { sys3(NR_fcntl, two[0], 1030 /* F_DUPFD_CLOEXEC */, HIGH), sys3(NR_fcntl, two[1], 1030, HIGH) };
		sys1(NR_close, two[0]);
		sys1(NR_close, two[1]);
		sf_fd_class[(u32)n->len - 1] = (u8)n->class;
		const u64 flags = nr == NR_pipe2 || nr == NR_socketpair ? a[1] : 0; /* SOCK_CLOEXEC is O_CLOEXEC */
		return high[0] >= 0 && high[1] >= 0 && put_at_storage(high[0], n->fd, flags) &&
		       put_at_storage(high[1], (s64)n->len - 1, flags);
	}
	if (n->class == F_FOREIGN) {
		if (n->len)
			sf_fd_class[(u32)n->len - 1] = F_FOREIGN;
		return 1;
	}
	if (n->class == F_CONNECTION) {
		sf_line_begins((u32)n->fd);
		if (n->extra_len == sizeof(struct sf_line))
			memcpy(&sf_line[sf_line_of((u32)n->fd)].l, PAYLOAD + r->out_off + n->extra_off, sizeof(struct sf_line));
		get_option(a[0], 1, SO_DOMAIN, &domain, 4);
		own = sys3(NR_socket, domain, 1 /* SOCK_STREAM */ | (nr == NR_accept4 ? a[3] : 0), 0);
	} else {
		own = sf_call_agreed(e, call);
		sf_segment_opened(nr, a, own);
	}
	return own < 0 ? may_end_so(e, nr, own, r->ret, (u32)n->fd) : put_at_storage(own, r->ret, sf_closes_on_exec(own));
}

static int follow_state(struct sf_event *e, u32 nr, const u64 a[6], const struct sf_result *r, const struct sf_note *n)
{
	const u64 call[7] = { nr, a[0], a[1], a[2], a[3], a[4], a[5] };
	const u64 fd = (u32)n->fd;
	if (sf_fd_class[fd] == F_FOREIGN) /* what it holds is not the same here any more */
		return 1;
	sf_fd_class[fd] = (u8)n->class;
	switch (nr) {
	case NR_connect: return 1;
	case NR_timerfd_settime:
	case NR_read:
	case NR_readv: sf_alarm_follow(nr, a, n->off); return 1;
	case NR_listen: /* nobody is answered here until this site leads */ sf_line[fd].backlog = (u32)a[1]; return 1;
	case NR_epoll_ctl:
		if (!is_socket_storage(a[2]) && kind_of_storage(a[2]) != F_STREAM && kind_of_storage(a[2]) != F_POLL &&
		    kind_of_storage(a[2]) != F_SIGNALS && !is_channel(a[2]))
			return 1;
		break;
	case NR_bind: /* to an address that this site gets when it leads */
		set_word(fd, 0 /* IPPROTO_IP */, 15 /* IP_FREEBIND */, 1);
		set_word(fd, 41 /* IPPROTO_IPV6 */, 78 /* IPV6_FREEBIND */, 1);
		break;
	}
	s64 own = sf_call_agreed(e, call);
	if ((nr == NR_inotify_add_watch || nr == NR_inotify_rm_watch) && own != r->ret)
		sf_fd_class[fd] = F_FOREIGN; /* its events would be another name's */
	if (nr == NR_inotify_add_watch)
		sf_watch_added(fd, own);
	return nr != NR_bind || own == r->ret || may_end_so(e, nr, own, r->ret, fd);
}

static int follow_read(struct sf_event *e, const struct sf_call *c, u32 nr, const u64 a[6], const struct sf_result *r)
{
	const struct sf_note *n = NOTE(e->seq);
	u64 call[7] = { nr, a[0], a[1], a[2], a[3], a[4], a[5] };
	int moves = nr == NR_read || nr == NR_readv || (nr == NR_preadv2 && a[3] == ~0ull);
	if ((nr == NR_read || nr == NR_pread64) && call[3] > SF_READ_MAX)
		call[3] = SF_READ_MAX;
	s64 own = sf_call_agreed(e, call);
	for (;;) {
		if (own == r->ret && sf_matches(r, c, a, r->ret, n->extra_len)) {
			if (unlikely(load(&PAIR->fixed) == e->seq))
				sf_result_mended(r);
			return 1;
		}
		if (sf_rpc(SF_RPC_PAIR_READ, e->seq, (u32)a[0], n->off, (u64)own, (u64)r->ret) != 0)
			return 0;
		if (moves)
			sys3(NR_lseek, (u32)a[0], n->off, 0);
		own = sf_sys(nr, call[1], call[2], call[3], call[4], call[5], call[6]);
	}
}

/* Whether a path of the program is one of a protected file or directory: as it stands, or below the directory that it is relative to. */
static int is_protected_name(s64 dir, const char *path, u64 len)
{
	static char whole[8192];
	if (path[0] == '/')
		return is_protected_path(path, len);
	s64 base = dir == -100 /* AT_FDCWD */ ? sys3(NR_readlink, "/proc/self/cwd", whole, 4095) : sf_fd_name((u64)dir, whole, 4095);
	if (base <= 0)
		return 0;
	whole[base] = '/';
	memcpy(whole + base + 1, path, len + 1);
	return is_protected_path(whole, (u64)base + 1 + len);
}

/* What both sites have to know alike of a name. Times, inode numbers and blocks are each site's own; so is how many
 * bytes a directory takes. */
struct facts {
	u64 mode, owner, links, size;
};

static struct facts facts_of(u64 mode, u32 uid, u32 gid, u64 links, u64 size)
{
	const int is_file = (mode & S_IFMT) == S_IFREG;
	return (struct facts){ mode & 0177777, (u64)uid << 32 | gid, is_file ? links : 0, is_file ? size : 0 };
}

static int same_facts(struct sf_event *e, u32 nr, s64 own, struct facts o, struct facts t, u64 fd)
{
	if (own < 0)
		return may_end_so(e, nr, own, 0, fd);
	if (o.size != t.size)
		return may_end_so(e, nr, (s64)o.size, (s64)t.size, fd);
	return (o.mode == t.mode && o.owner == t.owner && o.links == t.links) || may_end_so(e, nr, 0, 0, fd);
}

/* The secondary looks at its own file when the program asks about one that is protected. */
static int follow_facts(struct sf_event *e, u32 nr, const u64 a[6], const struct sf_result *r)
{
	static char name[4096];
	const u8 *log = PAYLOAD + r->out_off;
	const int at = nr == NR_newfstatat || nr == NR_statx;
	struct stat st, theirs;
	u8 x[256];
	s64 own, len = 0;
	if (r->ret != 0 || r->out_len < (nr == NR_statx ? sizeof x : sizeof st))
		return 1;
	if (nr != NR_fstat && (len = sf_user_string(name, at ? a[1] : a[0], sizeof name)) < 0)
		return 1;
	if (nr == NR_fstat || (at && len == 0)) {
		if (kind_of_storage(a[0]) != F_PROTECTED)
			return 1;
	} else if (len == 0 || len >= (s64)sizeof name || !is_protected_name(at ? (s32)a[0] : -100, name, (u64)len)) {
		return 1;
	}
	if (nr == NR_statx) {
		own = sys6(nr, (u32)a[0], name, a[2], a[3], x, 0);
		const u32 *o = (const u32 *)x, *t = (const u32 *)log;
		const u32 both = o[0] & t[0]; /* stx_mask: bits 0 to 3 type, mode, links, uid; 4 gid; 9 size */
		if (own == 0 && (both & 0x21f) != 0x21f)
			return 1;
		return same_facts(e, nr, own, facts_of((u16)o[7], o[5], o[6], o[4], *(const u64 *)(x + 40)),
				  facts_of((u16)t[7], t[5], t[6], t[4], *(const u64 *)(log + 40)), a[0]);
	}
	own = nr == NR_fstat || (at && len == 0) ? sys2(NR_fstat, (u32)a[0], &st)
	      : at                               ? sys4(nr, (u32)a[0], name, &st, a[3])
						 : sys2(nr, name, &st);
	memcpy(&theirs, log, sizeof theirs);
	return same_facts(e, nr, own, facts_of(st.mode, st.uid, st.gid, st.nlink, (u64)st.size),
			  facts_of(theirs.mode, theirs.uid, theirs.gid, theirs.nlink, (u64)theirs.size),
			  nr == NR_fstat || at ? a[0] : ~0ull);
}

/* A listing of a protected directory, as a sum over its names: each file system has an order of its own. A listing in
 * which names changed may or may not have them, and says nothing. */
static struct {
	u64 sum, count, changes;
	u8 begun, broken;
} listing[FDS_MAX];

static u64 name_changes(void)
{
	return load(&((struct sf_tree *)SF_TREE)->changes);
}

static void add_names(const u8 *p, u64 n, u64 *sum, u64 *count)
{
	for (u64 i = 0; i + 19 < n;) {
		u64 len = *(const u16 *)(p + i + 16), h = 0xcbf29ce484222325ull;
		if (len < 20 || len > n - i)
			return;
		for (const u8 *c = p + i + 19; c < p + i + len && *c; c++)
			h = (h ^ *c) * 0x100000001b3ull;
		*sum += h ^ h >> 29;
		++*count;
		i += len;
	}
}

static int follow_names(struct sf_event *e, u32 nr, const u64 a[6], const struct sf_result *r)
{
	static char name[4096];
	static u8 piece[8192];
	const u64 fd = (u32)a[0];
	u64 sum = 0, count = 0;
	if (r->ret < 0 || fd >= FDS_MAX || kind_of_storage(fd) != F_DIRECTORY)
		return 1;
	if (!listing[fd].begun) {
		listing[fd].begun = 1;
		listing[fd].sum = listing[fd].count = 0;
		listing[fd].changes = name_changes();
	}
	if (r->ret > 0) {
		add_names(PAYLOAD + r->out_off, (u64)r->ret < r->out_len ? (u64)r->ret : r->out_len, &listing[fd].sum, &listing[fd].count);
		return 1;
	}
	listing[fd].begun = 0;
	s64 len = sf_fd_name(fd, name, sizeof name - 1);
	if (listing[fd].broken || listing[fd].changes != name_changes() || len <= 0 || !is_protected_path(name, (u64)len))
		return 1;
	s64 own = sys4(NR_openat, fd, ".", 02200000 /* O_RDONLY|O_DIRECTORY|O_CLOEXEC */, 0), n = own;
	while (n > 0 && (n = sys3(NR_getdents64, own, piece, sizeof piece)) > 0)
		add_names(piece, (u64)n, &sum, &count);
	if (own >= 0)
		sys1(NR_close, own);
	if (own >= 0 && n == 0 && sum == listing[fd].sum && count == listing[fd].count)
		return 1;
	return may_end_so(e, nr, own < 0 ? own : n < 0 ? n : (s64)count, (s64)listing[fd].count, fd);
}

/* What begins a listing anew, or leaves it in the middle. */
static void follow_place(u32 nr, const u64 a[6], s64 ret)
{
	const u64 fd = nr == NR_open || nr == NR_openat ? (u64)ret : (u32)a[0];
	if (ret >= 0 && (name_row(nr) >= 0 || nr == NR_creat || nr == NR_openat2 || (nr == NR_open && (a[1] & 0100)) ||
			 (nr == NR_openat && (a[2] & 0100))))
		__atomic_fetch_add(&((struct sf_tree *)SF_TREE)->changes, 1, __ATOMIC_SEQ_CST);
	if (fd >= FDS_MAX)
		return;
	if (nr == NR_open || nr == NR_openat || nr == NR_openat2 || nr == NR_close)
		listing[fd].begun = listing[fd].broken = 0;
	if (nr == NR_lseek) {
		listing[fd].begun = 0;
		listing[fd].broken = ret != 0;
	}
}

/* What it tells of a protected file or directory another process may be about to change. */
static int asks_of_names(u32 nr, const u64 a[6])
{
	static char name[4096];
	const int at = nr == NR_newfstatat || nr == NR_statx;
	if (nr == NR_getdents64)
		return kind_of_storage(a[0]) == F_DIRECTORY;
	if (nr != NR_fstat && nr != NR_stat && nr != NR_lstat && !at)
		return 0;
	const s64 len = nr == NR_fstat ? 0 : sf_user_string(name, at ? a[1] : a[0], sizeof name);
	if (len == 0 && (nr == NR_fstat || at))
		return kind_of_storage(a[0]) == F_PROTECTED;
	return len > 0 && len < (s64)sizeof name && is_protected_name(at ? (s32)a[0] : -100, name, (u64)len);
}

/* Calls that both sites make on files, or ask about them, the program's pipes (crew.c), and what it has of System V (ipc.c); and
 * kill(2): whoever is killed has no turn then. */
int sf_takes_turns(u32 nr, const u64 a[6])
{
	return asks_of_names(nr, a) || nr == NR_kill || is_open(nr) || sf_ipc_changes(nr, a) || sf_alarm_call(nr) ||
	       ((is_read(nr) || is_write(nr)) && (is_file(a[0]) || is_channel(a[0]))) || is_both_fd(nr, a) ||
	       (kind_of_storage(a[0]) == F_DUPLEX && sf_channel_call(nr)) || name_row(nr) >= 0;
}

enum sf_pipe_end sf_pipe_end(u32 nr, const u64 a[6])
{
	if (!is_channel(a[0]) || sf_channel_at_once(nr, a))
		return SF_PIPE_NONE;
	if (kind_of_storage(a[0]) == F_DUPLEX && sf_channel_call(nr))
		return sf_channel_sends(nr) ? SF_PIPE_WRITE : SF_PIPE_READ;
	return is_read(nr) ? SF_PIPE_READ : is_write(nr) ? SF_PIPE_WRITE : SF_PIPE_NONE;
}

/* Bytes that a write has left to move. */
u64 sf_bytes_left(u32 nr, const u64 a[6])
{
	u64 iov[2] = { 0, 0 };
	if (nr == NR_sendto)
		return a[2];
	if (nr == NR_sendmsg)
		return sf_user_bytes(iov, a[1] + 16, sizeof iov) == 0 ? vector_bytes(iov[0], iov[1]) - app.done_of_call : 0;
	return write_bytes(nr, a) - (nr == NR_write ? 0 : app.done_of_call);
}

static void follow_channel(u32 nr, const u64 a[6], const struct sf_result *r, const struct sf_note *n)
{
	const struct sf_came *came = (const struct sf_came *)(PAYLOAD + r->out_off + n->extra_off);
	const u32 many = nr == NR_recvmsg ? n->extra_len / (u32)sizeof *came : 0;
	if (kind_of_storage(a[0]) == F_WATCHES) {
		if (is_read(nr))
			sf_watch_follow(a, r->ret);
		return;
	}
	if (is_message_channel(a[0])) {
		sf_channel_follow(nr, a, r->ret, came, many <= SF_CAME_MAX ? many : 0);
		return;
	}
	for (u32 i = 0; i < many; i++) /* from an outsider: nobody else has them */
		if ((u32)came[i].fd < FDS_MAX)
			sf_fd_class[came[i].fd] = F_FOREIGN;
	count(nr, a, r->ret);
}

/* The secondary: its own part of an agreed call. 0: it does not fit the log. */
static int follow_open(struct sf_event *e, u32 nr, const u64 a[6], s64 ret, const struct sf_note *n)
{
	const u64 call[7] = { nr, a[0], a[1], a[2], a[3], a[4], a[5] };
	const s64 own = sf_call_agreed(e, call);
	if (own < 0 && !may_end_so(e, nr, own, ret, a[0]))
		return 0;
	sf_fd_class[(u32)ret] = own < 0 ? F_NONE : (u8)n->class;
	sf_segment_opened(nr, a, own);
	return own < 0 || put_at_storage(own, ret, sf_closes_on_exec(own));
}

static int follow_close(struct sf_event *e, u32 nr, const u64 a[6], s64 ret, const struct sf_note *n)
{
	const u64 call[7] = { nr, a[0], a[1], a[2], a[3], a[4], a[5] };
	if (n->class == F_FOREIGN) { /* there may be none here */
		sys1(NR_close, (u32)a[0]);
		sf_fd_class[(u32)a[0]] = F_NONE;
		return 1;
	}
	const s64 own = sf_call_agreed(e, call);
	for (u64 fd = nr == NR_close ? (u32)a[0] : n->off; fd <= (nr == NR_close ? (u32)a[0] : n->len) && fd < FDS_MAX; fd++)
		sf_fd_class[fd] = F_NONE;
	return own == ret || nr != NR_close || may_end_so(e, nr, own, ret, a[0]);
}

static int follow_copy(u32 nr, const u64 a[6], s64 ret, const struct sf_note *n)
{
	const u8 class = sf_fd_class[(u32)n->len] == F_FOREIGN ? F_FOREIGN : (u8)n->class;
	if (class == F_NONE || class == F_FOREIGN)
		sys1(NR_close, ret);
	else if (sys3(NR_dup3, n->len, ret,
		      nr == NR_dup3                         ? a[2]
		      : nr == NR_fcntl && (u32)a[1] == 1030 ? 02000000
							    : 0) != ret &&
		 (s64)n->len != ret)
		return 0;
	if (class == F_CONNECTION && (u64)n->len != (u32)ret)
		sf_line_copied(n->len, (u32)ret);
	sf_fd_class[(u32)ret] = class;
	sf_watches_copied(n->len, (u32)ret);
	return 1;
}

/* Segments, semaphores and queues of System V: this site has its own. */
static int follow_ipc(struct sf_event *e, const struct sf_call *c, u32 nr, const u64 a[6], const struct sf_result *r)
{
	s64 own = r->ret;
	if (sf_ipc_kind(nr) != SF_IPC_SEGMENT) {
		own = sf_ipc_follows(c, nr, a, r);
		return own == r->ret || may_end_so(e, nr, own, r->ret, ~0ull);
	}
	if (nr == NR_shmctl && own == 0 && ((u32)a[1] == 0 /* IPC_RMID */ || (u32)a[1] == 1 /* IPC_SET */))
		sys3(NR_shmctl, sf_ipc_own(SF_IPC_SEGMENT, (s32)a[0]), (u32)a[1], a[2]);
	if (nr != NR_shmget || own < 0 || !sf_segment_made(a))
		return 1;
	own = sf_segment_make(a);
	if (own >= 0 && !sf_ipc_numbered(SF_IPC_SEGMENT, (s32)r->ret, (s32)own))
		own = -ENOSPC;
	return own >= 0 || may_end_so(e, nr, own, r->ret, ~0ull);
}

static int follows(struct sf_event *e, const struct sf_call *c, u32 nr, const u64 a[6], const struct sf_result *r)
{
	const struct sf_note *n = NOTE(e->seq);
	const u64 call[7] = { nr, a[0], a[1], a[2], a[3], a[4], a[5] };
	s64 own;
	if (me.role == SF_RERUN) { /* it touches no disk: what both had given stands in the log */
		sf_scatter(r, c, a, r->ret);
		return 1;
	}
	follow_place(nr, a, r->ret);
	if (n->seq != e->seq) {
		sf_scatter(r, c, a, r->ret);
		return r->ret == -EINTR; /* a signal came before the call: the primary has not made it either */
	}
	switch (n->kind) {
	case SF_N_OPEN: return follow_open(e, nr, a, r->ret, n);
	case SF_N_CLOSE: return follow_close(e, nr, a, r->ret, n);
	case SF_N_DUP: return follow_copy(nr, a, r->ret, n);
	case SF_N_READ: return follow_read(e, c, nr, a, r);
	case SF_N_NEW: sf_scatter(r, c, a, r->ret); return follow_new(e, nr, a, r, n);
	case SF_N_STATE: sf_scatter(r, c, a, r->ret); return follow_state(e, nr, a, r, n);
	case SF_N_WRITE:
	case SF_N_SYNC:
	case SF_N_TRUNCATE:
	case SF_N_ALLOCATE:
	case SF_N_OTHER:
	case SF_N_NAME:
		own = sf_call_agreed(e, call);
		if (own != r->ret && !may_end_so(e, nr, own, r->ret, a[0]))
			return 0;
		break;
	default:
		if (nr == NR_fstat || nr == NR_stat || nr == NR_lstat || nr == NR_newfstatat || nr == NR_statx)
			if (!follow_facts(e, nr, a, r))
				return 0;
		if (nr == NR_getdents64 && !follow_names(e, nr, a, r))
			return 0;
		if (unlikely(sf_ipc_kind(nr) >= 0) && !follow_ipc(e, c, nr, a, r))
			return 0;
	}
	sf_scatter(r, c, a, r->ret);
	if (unlikely(is_message_channel(a[0]) || kind_of_storage(a[0]) == F_WATCHES) || unlikely(nr == NR_recvmsg && n->extra_len))
		follow_channel(nr, a, r, n);
	else
		count(nr, a, r->ret);
	if (unlikely(nr == NR_wait4 || nr == NR_waitid))
		sf_pair_waited(nr, a, r->ret);
	return 1;
}

int sf_pair_follow(struct sf_event *e, const struct sf_call *c, u32 nr, const u64 a[6], const struct sf_result *r)
{
	if (!follows(e, c, nr, a, r))
		return 0;
	if (likely(!app.shown_n) || me.role == SF_RERUN || NOTE(e->seq)->seq != e->seq)
		return 1;
	shown_after(nr, a, r->ret, NOTE(e->seq)->off);
	return sf_shown_agrees(r);
}

/* The primary has published: what it read, or made durable, the program learns when both sites have
 * done it. The launcher may have put right what the own disk gave (PAIR->fixed). */
void sf_pair_wait(struct sf_event *e, const struct sf_result *r, const struct sf_call *c, const u64 a[6])
{
	const struct sf_note *n = NOTE(e->seq);
	if (likely(!sf_pair_has_turn())) {
		if (n->seq != e->seq || (n->kind != SF_N_READ && n->kind != SF_N_SYNC && n->kind != SF_N_OPEN))
			return;
		if (n->kind == SF_N_READ && r->ret <= 0 && n->class != F_PROTECTED)
			return;
	}
	u64 upto = e->seq;
	if (unlikely(PAIR->every > 1 || PAIR->late) && n->kind == SF_N_READ && !sf_pair_has_turn() && reads_at_once(e->nr, a)) {
		static u64 reads, exchanged;
		if (++reads % (PAIR->every ? PAIR->every : 1))
			return;
		/* A repair may have taken the program back behind the last exchange. */
		if (PAIR->late && exchanged < e->seq)
			upto = exchanged;
		exchanged = e->seq;
	}
	/* A launcher that wants the program to pause (join.c) gets it at the next event. */
	while (!sf_followers_at(upto + 1, e->seq) && load(&G->alarm) == SF_A_REQUEST)
		__builtin_ia32_pause();
	if (unlikely(load(&PAIR->fixed) == e->seq)) {
		sf_result_mended(r);
		sf_scatter(r, c, a, r->ret);
	}
}

/* Room for what the program has sent on each connection. */
s64 sf_sent_ring(void)
{
	return sys6(NR_mmap, SF_STAGE, SENT_BYTES * FDS_MAX, 3, 0x2 | 0x20 | 0x10 | 0x4000 /* PRIVATE|ANON|FIXED|NORESERVE */, -1, 0) ==
			       (s64)SF_STAGE
		       ? 0
		       : -ENOMEM;
}

/* A listing that was begun before this site came. */
void sf_listing_lost(u64 fd)
{
	listing[fd].begun = 0;
	listing[fd].broken = 1;
}

/* A site stands alone: no copies are made, and the secondary is the follower of a leader elsewhere. */
void sf_pair_init(void)
{
	for (const u64 *p = (const u64 *)sf_boot.auxv; p[0]; p += 2)
		if (p[0] == 25 /* AT_RANDOM */)
			memcpy((void *)p[1], PAIR->random, 16);
	if (sys3(NR_shmat, PAIR->tree, SF_TREE, 0) != (s64)SF_TREE)
		sf_setup_failed(SF_STEP_PRIVATE, -ENOMEM);
	sf_shown_leaves(); /* the program before this one */
	if (PAIR->inherits) {
		for (u64 fd = 0; fd < FDS_MAX; fd++) {
			sf_fd_class[fd] = PAIR->classes[fd];
			sf_line[fd].backlog = 128;
		}
		sf_kernel_inherit(PAIR->kept);
	} else {
		sf_fd_class[0] = sf_fd_class[1] = sf_fd_class[2] = F_STREAM;
	}
	if (!(G->options & SF_O_PAIR_SECONDARY))
		return;
	sf_domain_of_site(1);
	if (sf_sent_ring() < 0)
		sf_setup_failed(SF_STEP_PRIVATE, -ENOMEM);
	me.slot = 1;
	me.role = SF_FOLLOWER;
	me.parent = sf_boot.launcher_pid;
	store(&G->slot[1].done, me.next);
}

/* What the program is about to send the primary may have sent, as far as its buffer took it: to the peer it counts as
 * sent, or its acknowledgement would be one of bytes that this kernel knows nothing of. The call has been made. */
static void count_pending(void)
{
	const struct sf_regs *r = me.regs;
	const u64 a[6] = { r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9 }, fd = (u32)a[0];
	const u32 nr = (u32)r->rax;
	u64 n = a[2], iov[2];
	if (me.doing != SF_D_SYSCALL || app.done_of_call || kind_of_storage(fd) != F_CONNECTION || !sf_line[sf_line_of(fd)].l.known)
		return;
	if (nr == NR_sendmsg)
		n = sf_user_bytes(iov, a[1] + 16, sizeof iov) == 0 ? vector_bytes(iov[0], iov[1]) : 0;
	else if (is_write(nr))
		n = write_bytes(nr, a);
	else if (nr != NR_sendto)
		return;
	if (n > SENT_BYTES / 2)
		n = SENT_BYTES / 2;
	if (!n)
		return;
	count(nr, a, (s64)n);
	me.made = me.next;
	me.made_ret = (s64)n;
}

#define PORT_TRIES 1000 /* one a millisecond: on the same host the lost program's processes end a little later */

static void listens(u64 fd)
{
	static const struct {
		s64 sec, nsec;
	} pause = { 0, 1000000 };
	for (u32 tries = 0; sys2(NR_listen, fd, sf_line[fd].backlog) == -EADDRINUSE && tries < PORT_TRIES; tries++)
		sys2(NR_nanosleep, &pause, 0);
}

/* The primary is lost, and this site may go on: here, at an event of which the log holds nothing. What the primary's
 * kernel held for the program is taken over, or made again. 0; otherwise the descriptor without which nobody can lead, and
 * 1000, below 0, or -1 where a call that would have to be made again is not known. A connection that cannot be gone on with is one that its peer has closed. */
s64 sf_pair_lead(int asked)
{
	u32 unread;
	if (app.kept.lost)
		return -1;
	for (s64 fd = 0; fd < FDS_MAX; fd++)
		if (sf_fd_class[fd] == F_FOREIGN || (asked && sf_fd_class[fd] == F_OUTGOING))
			return -1000 - fd;
	if (asked) /* by the primary, about the other site: the classes are alike. What its kernel has done has to be in the log */
		return me.made == me.next ? -EAGAIN : 0;
	me.slot = 0;
	me.role = SF_LEADER;
	me.reborn = 1;
	me.renumbered = (u64)sys0(NR_getpid) != G->leader_pid;
	me.base = G->base = me.next;
	me.out = 0;
	me.reset_pending = 0;
	me.made = 0;
	me.poison = 0;
	sf_log_anew();
	sf_pair_leads();
	sf_pair_reap();
	for (int s = 1; s <= SF_SIGNALS; s++)
		sf_kernel_action(s);
	sf_kernel_here();
	sf_threads_lead();
	count_pending();
	for (u64 fd = 0; fd < FDS_MAX; fd++) {
		if (sf_fd_class[fd] == F_LISTEN)
			listens(fd);
		PAIR->dropped += sf_fd_class[fd] == F_OUTGOING;
		if (sf_fd_class[fd] != F_CONNECTION || !is_first_of_line(fd))
			continue;
		struct sf_line *l = &sf_line[sf_line_of(fd)].l;
		input_of(fd, &unread);
		if (l->known && unread != INPUT_CUT && go_on_with(fd) == 0)
			PAIR->carried++;
		else
			PAIR->dropped++, l->known = 0;
	}
	mute = 1;
	return 0;
}
