/* Parts: one call of the program that the agent makes of several.
 *
 * Bytes that the kernel moves by itself from a file to a socket, or into a mapping, pass no comparison. In a pair such a call is an
 * event that only says how it will be made; then come calls that pairs know, one event each, with registers of the agent's. The
 * program sees one result.
 *
 *   sendfile, splice   plan ──► [buffer] ──► pread (compared) ──► write ──► [pread ...] ──► [lseek] ──► result
 *   splice to a file   plan ──► [buffer] ──► read of the pipe ──► write, pwrite ──► result
 *   mmap               plan ──► anonymous memory ──► pread (compared), 1 MiB each ──► mprotect ──► result
 *
 * The plan is the leader's: how much there is to move, and where a file's position stands. Between any two parts the program may be
 * copied, run again or taken over: what is to come stands in struct sf_parts.
 *
 * Invariants
 *  1. A replica does not decide by its descriptors what the parts are: a re-run has none.
 *  2. Before anything has moved a signal has the whole call made again; behind that the call ends with what has moved. A part that may not
 *     be left without the next one is quiet: signals wait.
 *
 * Not covered: sockets and pipes among each other; EIO in the middle of a mapping (the site leaves the program to the other one).
 * See sendfile(2), splice(2), mmap(2).
 */
#include "agent.h"
#include "ground/stat.h"
#include "pair/storage.h"

#include <asm/errno.h>

#define PAGE 4096ull
#define S_IFMT 0170000
#define S_IFIFO 0010000
#define S_IFSOCK 0140000
#define O_WRONLY 1
#define O_APPEND 02000
#define O_NONBLOCK 04000
#define SPLICE_F_NONBLOCK 2
#define SPLICE_FLAGS 15
#define PROT_WRITE 2
#define PROT_EXEC 4

/* What moves at once. It goes over the link before it is sent, and what a socket then has no room for was sent over the link in
 * vain: about half of what a socket takes (storage.h, SNDBUF). */
#define PART_BYTES (128ull << 10)
#define FILL_BYTES (1ull << 20)
/* Of one mapping: each byte is read on both sites before the program goes on. */
#define MAP_MOST (1ull << 30)
#define MOVE_MOST 0x7ffff000ull /* sendfile(2), NOTES */

#define AGAIN (1ull << 32) /* of a plan: further rounds follow */
#define OF_PIPE (1ull << 33)

enum part { PART_NONE, PART_ROOM, PART_READ, PART_WRITE, PART_SEEK, PART_MAP, PART_FILL, PART_CLOSE, PART_UNMAP };

static u8 kind_of_part(u64 fd)
{
	return (u32)fd < FDS_MAX ? sf_fd_class[(u32)fd] : F_NONE;
}

static int is_file_part(u64 fd)
{
	const u8 k = kind_of_part(fd);
	return k == F_FILE || k == F_PROTECTED;
}

static int is_shared(const u64 a[6])
{
	return (a[3] & 3) != 2 /* MAP_PRIVATE */;
}

/* Files of procfs as well: what is sent of them is counted then. */
int sf_parts_are(u32 nr, const u64 a[6])
{
	switch (nr) {
	case NR_sendfile: return is_file_part(a[1]) || kind_of_part(a[1]) == F_NONE;
	case NR_splice: return is_file_part(a[0]) || is_file_part(a[2]);
	case NR_mmap:
		return !(a[3] & 0x20 /* MAP_ANONYMOUS */) && (a[3] & 3) && kind_of_part(a[4]) == F_PROTECTED &&
		       !(is_shared(a) && (a[2] & (PROT_WRITE | PROT_EXEC)));
	}
	return 0;
}

/* Whether a result of such a call may be a plan. */
int sf_parts_call(u32 nr)
{
	return nr == NR_sendfile || nr == NR_splice || nr == NR_mmap;
}

/* ---- the leader's plan ---- */

static u32 type_of(u64 fd)
{
	struct stat st;
	return sys2(NR_fstat, (u32)fd, &st) == 0 ? st.mode & S_IFMT : 0;
}

/* A new process has one thread, which is in no such call. */
void sf_parts_born(void)
{
	for (u32 i = 0; i < SF_PART_BUFFERS; i++)
		app.part_buffer[i] &= ~1ull;
}

/* How much a descriptor takes at once, and whether more may follow: a pipe is not waited for once it has got something. */
static s64 room_of(u64 fd, s64 flags, int nonblocking)
{
	const u32 type = type_of(fd);
	s32 waits = 1;
	if (type != S_IFIFO && type != S_IFSOCK)
		return (s64)(PART_BYTES | AGAIN);
	nonblocking |= (flags & O_NONBLOCK) != 0;
	if (nonblocking && !sf_is_ready(fd, 4 /* POLLOUT */))
		return -EAGAIN;
	if (type == S_IFSOCK)
		return (s64)(PART_BYTES | (nonblocking ? 0 : AGAIN));
	if (sys3(NR_ioctl, (u32)fd, 0x541b /* FIONREAD */, &waits) < 0 || waits)
		return PAGE; /* pipe(7): one that takes anything takes PIPE_BUF */
	const s64 room = sys2(NR_fcntl, (u32)fd, 1032 /* F_GETPIPE_SZ */);
	return room<(s64)PAGE ? (s64)PAGE : room>(s64) PART_BYTES ? (s64)PART_BYTES : room;
}

/* The place that a pointer names, or the file's own. */
static s64 place_of_part(u64 fd, u64 at, u64 *place)
{
	s64 own = 0;
	if (at && sf_user_bytes(&own, at, sizeof own) < 0)
		return -EFAULT;
	if (!at && (own = sys3(NR_lseek, (u32)fd, 0, 1 /* SEEK_CUR */)) < 0)
		own = 0;
	*place = (u64)own;
	return own < 0 ? -EINVAL : 0;
}

/* Both descriptors of a call that moves bytes: the flags of the one that is written to, or an errno. */
static s64 open_for(u64 in, u64 out)
{
	const s64 reads = sys2(NR_fcntl, (u32)in, 3 /* F_GETFL */), writes = sys2(NR_fcntl, (u32)out, 3);
	if (reads < 0 || writes < 0 || (reads & 3) == O_WRONLY || !(writes & 3))
		return -EBADF;
	return writes & O_APPEND ? -EINVAL : writes;
}

static s64 least(u64 wanted, s64 room)
{
	const u64 most = (u64)room & 0xffffffff;
	return (s64)((wanted < most ? wanted : most) | (wanted > most ? (u64)room & AGAIN : 0));
}

static s64 plan_send(const u64 a[6], u64 *place)
{
	const s64 flags = open_for(a[1], a[0]);
	s64 r = flags < 0 ? flags : place_of_part(a[1], a[2], place);
	if (r < 0 || !a[3])
		return r < 0 ? r : 0;
	r = room_of(a[0], flags, 0);
	if (!a[2]) /* its position is set at the end */
		r = r < 0 ? r : r & ~(s64)AGAIN;
	return r < 0 ? r : least(a[3] < MOVE_MOST ? a[3] : MOVE_MOST, r);
}

static s64 plan_splice(const u64 a[6], u64 *place)
{
	const int from_file = is_file_part(a[0]), nonblocking = (a[5] & SPLICE_F_NONBLOCK) != 0;
	s64 flags = open_for(a[0], a[2]), r;
	if (!a[4])
		return 0;
	if ((u32)a[5] & ~SPLICE_FLAGS)
		return -EINVAL;
	if (flags < 0)
		return flags;
	if (type_of(a[from_file ? 2 : 0]) != S_IFIFO)
		return -EINVAL;
	if (a[from_file ? 3 : 1])
		return -ESPIPE;
	if ((r = place_of_part(a[from_file ? 0 : 2], a[from_file ? 1 : 3], place)) < 0)
		return r;
	if (from_file)
		return (r = room_of(a[2], flags, nonblocking)) < 0 ? r : least(a[4], r & ~(s64)AGAIN);
	if (nonblocking && !sf_is_ready(a[0], 1 /* POLLIN */))
		return -EAGAIN;
	return (s64)((a[4] < PART_BYTES ? a[4] : PART_BYTES) | OF_PIPE);
}

static s64 plan_map(const u64 a[6])
{
	struct stat st;
	u64 fs[15];
	const s64 flags = sys2(NR_fcntl, (u32)a[4], 3 /* F_GETFL */);
	if (flags < 0 || sys2(NR_fstat, (u32)a[4], &st) < 0)
		return -EBADF;
	if ((flags & 3) == O_WRONLY)
		return -EACCES;
	if (!a[1] || a[5] % PAGE)
		return -EINVAL;
	if (a[1] >> 47)
		return -ENOMEM;
	if ((a[2] & PROT_EXEC) && sys2(NR_fstatfs, (u32)a[4], fs) == 0 && (fs[10] & 8 /* ST_NOEXEC */))
		return -EPERM;
	const u64 has = (u64)st.size > a[5] ? (u64)st.size - a[5] : 0, bytes = has < sf_page_up(a[1]) ? has : sf_page_up(a[1]);
	if (bytes > MAP_MOST)
		return -ENODEV;
	const s64 r = sf_shown_room((u32)a[4], is_shared(a), (flags & 3) != 0);
	return r < 0 ? r : (s64)bytes;
}

/* What the call comes to, or, with SF_R_PARTS, how it is made. */
struct sf_result *sf_parts_plan(struct sf_event *e, u32 nr, const u64 a[6])
{
	u64 place = 0;
	const s64 plan = nr == NR_sendfile ? plan_send(a, &place) : nr == NR_splice ? plan_splice(a, &place) : plan_map(a);
	struct sf_result *r = sf_result_begin(e, plan);
	if (plan > 0 || (plan == 0 && nr == NR_mmap)) {
		r->flags |= SF_R_PARTS;
		r->aux = place;
	}
	return r;
}

/* ---- the parts, in every replica ---- */

static void makes_part(struct sf_regs *r, enum part stage, int quiet, u32 nr, u64 a, u64 b, u64 c, u64 d)
{
	app.parts.stage = stage;
	app.parts.quiet = (u32)quiet;
	r->rax = nr;
	r->rdi = a;
	r->rsi = b;
	r->rdx = c;
	r->r10 = d;
}

static void registers_of(const struct sf_parts *p, struct sf_regs *r)
{
	r->rdi = p->a[0];
	r->rsi = p->a[1];
	r->rdx = p->a[2];
	r->r10 = p->a[3];
	r->r8 = p->a[4];
	r->r9 = p->a[5];
}

static void gives_buffer(const struct sf_parts *p)
{
	if (p->nr != NR_mmap && p->at)
		app.part_buffer[p->buffer] = p->at;
}

static void ends_part(struct sf_regs *r, s64 answer)
{
	registers_of(&app.parts, r);
	r->rax = (u64)answer;
	gives_buffer(&app.parts);
	app.parts.stage = app.parts.quiet = 0;
	app.parts.over = 1;
}

static void begins_whole(struct sf_regs *r)
{
	registers_of(&app.parts, r);
	r->rax = app.parts.nr;
	gives_buffer(&app.parts);
	memset(&app.parts, 0, sizeof app.parts);
}

static void maps_memory(struct sf_regs *r, u32 stage, u64 at, u64 n, u64 flags)
{
	makes_part(r, stage, 1, NR_mmap, at, n, 3 /* PROT_READ|PROT_WRITE */, flags | 0x22 /* MAP_PRIVATE|MAP_ANONYMOUS */);
	r->r8 = ~0ull;
	r->r9 = 0;
}

static u64 wanted_of(const struct sf_parts *p)
{
	const u64 all = p->nr == NR_splice ? p->a[4] : p->a[3] < MOVE_MOST ? p->a[3] : MOVE_MOST, round = p->plan & 0xffffffff;
	return all - p->moved < round ? all - p->moved : round;
}

static void reads_part(struct sf_regs *r)
{
	const struct sf_parts *p = &app.parts;
	if (p->plan & OF_PIPE)
		makes_part(r, PART_READ, 0, NR_read, p->a[0], p->at, wanted_of(p), 0);
	else
		makes_part(r, PART_READ, 1, NR_pread64, p->a[p->nr == NR_sendfile], p->at, wanted_of(p), p->place + p->moved);
}

/* A buffer of the program's own memory: it is compared, copied and run again as such. Each call that is under way has one. */
static void takes_buffer(struct sf_regs *r)
{
	struct sf_parts *p = &app.parts;
	u32 i = 0;
	while (i < SF_PART_BUFFERS && (app.part_buffer[i] & 1))
		i++;
	ASSERT(i < SF_PART_BUFFERS);
	p->buffer = i;
	if (!app.part_buffer[i]) {
		maps_memory(r, PART_ROOM, 0, PART_BYTES, 0);
		return;
	}
	p->at = app.part_buffer[i];
	app.part_buffer[i] |= 1;
	reads_part(r);
}

/* The plan is agreed on. */
void sf_parts_begin(struct sf_regs *r, s64 plan, u64 place)
{
	struct sf_parts *p = &app.parts;
	memset(p, 0, sizeof *p);
	*p = (struct sf_parts){
		.nr = (u32)r->rax, .plan = (u64)plan, .place = place, .a = { r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9 }
	};
	if (p->nr != NR_mmap)
		takes_buffer(r);
	else
		maps_memory(r, PART_MAP, p->a[0], p->a[1],
			    0x4000 /* MAP_NORESERVE */ | (p->a[3] & 0x102050 /* FIXED, 32BIT, LOCKED, NOREPLACE */));
}

static void closes_map(struct sf_regs *r)
{
	const struct sf_parts *p = &app.parts;
	if ((p->a[2] & 7) == 3)
		ends_part(r, (s64)p->at);
	else
		makes_part(r, PART_CLOSE, 1, NR_mprotect, p->at, sf_page_up(p->a[1]), p->a[2] & 7, 0);
}

static void fills_map(struct sf_regs *r)
{
	const struct sf_parts *p = &app.parts;
	const u64 left = p->plan > p->moved ? sf_page_up(p->plan - p->moved) : 0; /* whole pages, for direct I/O */
	if (left)
		makes_part(r, PART_FILL, 1, NR_pread64, p->a[4], p->at + p->moved, left < FILL_BYTES ? left : FILL_BYTES,
			   p->a[5] + p->moved);
	else
		closes_map(r);
}

static void goes_on_map(struct sf_regs *r, s64 ret)
{
	struct sf_parts *p = &app.parts;
	switch (p->stage) {
	case PART_MAP:
		if (sf_failed(ret)) {
			ends_part(r, ret);
			return;
		}
		p->at = (u64)ret;
		sf_shown_begins(p->at, p->a, is_shared(p->a));
		fills_map(r);
		return;
	case PART_FILL:
		p->moved += ret > 0 ? (u64)ret : 0;
		if (ret > 0)
			fills_map(r);
		else if (ret == 0) /* the file has become shorter */
			closes_map(r);
		else
			makes_part(r, PART_UNMAP, 1, NR_munmap, p->at, sf_page_up(p->a[1]), 0, 0);
		return;
	case PART_CLOSE: ends_part(r, sf_failed(ret) ? ret : (s64)p->at); return;
	}
	ends_part(r, -ENODEV);
}

/* Where the offset stands that the call moves on, or 0: the file's own position. */
static u64 offset_of(const struct sf_parts *p)
{
	return p->a[p->nr == NR_sendfile ? 2 : p->plan & OF_PIPE ? 3 : 1];
}

static void written_part(struct sf_regs *r, s64 ret)
{
	struct sf_parts *p = &app.parts;
	const u64 at = offset_of(p), all = p->nr == NR_splice ? p->a[4] : p->a[3];
	p->moved += ret > 0 ? (u64)ret : 0;
	if (!p->moved) {
		ends_part(r, ret);
		return;
	}
	const u64 place = p->place + p->moved;
	if (ret > 0 && at && sf_user_put(at, &place, sizeof place))
		ends_part(r, -EFAULT);
	else if (ret == (s64)p->n && (p->plan & AGAIN) && p->moved < all && !p->held) {
		p->rests = app.threads > 1;
		reads_part(r);
	} else if (!at && !(p->plan & OF_PIPE))
		makes_part(r, PART_SEEK, 1, NR_lseek, p->a[p->nr == NR_sendfile], place, 0 /* SEEK_SET */, 0);
	else
		ends_part(r, (s64)p->moved);
}

static void goes_on_move(struct sf_regs *r, s64 ret)
{
	struct sf_parts *p = &app.parts;
	const int of_pipe = (p->plan & OF_PIPE) != 0;
	const u64 out = p->a[p->nr == NR_sendfile ? 0 : 2];
	switch (p->stage) {
	case PART_ROOM:
		if (sf_failed(ret)) {
			ends_part(r, -ENOMEM);
			return;
		}
		app.part_buffer[p->buffer] = (u64)ret;
		takes_buffer(r);
		return;
	case PART_READ:
		p->n = (u64)ret;
		if (ret <= 0)
			ends_part(r, p->moved ? (s64)p->moved : ret);
		else if (of_pipe && p->a[3])
			makes_part(r, PART_WRITE, 1, NR_pwrite64, out, p->at, p->n, p->place);
		else
			makes_part(r, PART_WRITE, of_pipe, NR_write, out, p->at, p->n, 0);
		return;
	case PART_WRITE: written_part(r, ret); return;
	}
	ends_part(r, (s64)p->moved);
}

/* A part has been made. */
void sf_parts_go_on(struct sf_regs *r, s64 ret, u32 flags, const struct sf_siginfo *info)
{
	struct sf_parts *p = &app.parts;
	if (flags & SF_R_SIGNAL) {
		if ((flags & SF_R_RESTART) && !p->moved) {
			begins_whole(r);
			return;
		}
		p->held = flags & (SF_R_SIGNAL | SF_R_MORE);
		p->info = *info;
		p->quiet = 1;
		if (flags & SF_R_RESTART) /* what has moved is the answer */
			ret = 0;
	}
	if (p->nr == NR_mmap)
		goes_on_map(r, ret);
	else
		goes_on_move(r, ret);
	p->quiet |= p->held != 0;
}

/* Between two rounds: 1: the call goes on when its thread does, as one that was parked. */
int sf_parts_rest(struct sf_regs *r)
{
	if (likely(!app.parts.rests))
		return 0;
	app.parts.rests = 0;
	r->rcx = r->rip;
	r->rip = (u64)sf_entry_syscall;
	return 1;
}

/* The last one has been made: what its result brings along, and what was held. */
u32 sf_parts_over(u32 flags, struct sf_siginfo *info)
{
	struct sf_parts *p = &app.parts;
	if (p->held) {
		flags = (flags & ~(u32)SF_R_RESTART) | p->held;
		*info = p->info;
	}
	memset(p, 0, sizeof *p);
	return flags;
}

/* A signal comes to a thread that waits in a part, as `r` has it by now: the whole call is made again, or ends. */
void sf_parts_cut(struct sf_parts *p, struct sf_regs *r, u64 done)
{
	const u64 moved = p->moved + done, place = p->place + moved, at = offset_of(p);
	registers_of(p, r);
	gives_buffer(p);
	if (moved) {
		if (at)
			sf_user_put(at, &place, sizeof place);
		else if (me.role != SF_RERUN)
			sys3(NR_lseek, (u32)p->a[p->nr == NR_sendfile], place, 0);
		r->rax = moved;
		if (r->rip == (u64)sf_entry_syscall)
			r->rip = r->rcx;
	} else if (r->rip == (u64)sf_entry_syscall) {
		r->rax = p->nr;
	}
	memset(p, 0, sizeof *p);
}
