/* FIFO: one that is opened without waiting for its other end, while other threads could go on.
 *
 * open(2) for one direction waits until somebody has opened the other one. For writing O_NONBLOCK asks that: ENXIO. For reading it
 * does not, and who waits to write has to find this reader. So it is opened at once, under a number that no program comes to by
 * itself, and has the program's own when somebody writes. tee(2) tells whether anybody does, and takes nothing.
 *
 * Invariants
 *  1. A reader stays open from its first attempt to its last: who writes meanwhile finds it, and gets no SIGPIPE.
 *  2. Who waits no more, by a signal or a fork, leaves no reader behind.
 *
 * Not covered: openat2(2); a leader that is replaced while a thread waits (the number stays open until the program ends).
 * See fifo(7), tee(2).
 */
#include "agent.h"
#include <asm/errno.h>

#define O_ACCMODE 3u
#define O_EXCL 0200u
#define O_NONBLOCK 04000u
#define O_DIRECTORY 0200000u
#define O_CLOEXEC 02000000u
#define O_PATH 010000000u
#define AT_FDCWD (-100)
#define F_DUPFD 0u
#define F_SETFL 4u
#define F_DUPFD_CLOEXEC 1030u
#define RLIMIT_NOFILE 7
#define SPLICE_F_NONBLOCK 2u
#define NUMBER_MAX 4096u /* the kernel's table of descriptors is as long as the highest number */

/* The leader's: where it is open for each thread that waits to read; 0: nowhere. */
static s32 reader[SF_THREADS_MAX + 1];

struct stat_words {
	u64 dev, ino, links;
	u32 mode, rest[29];
};
_Static_assert(sizeof(struct stat_words) == 144, "struct stat of x86-64");

static u64 flags_of(u32 nr, const u64 call[7])
{
	return call[nr == NR_open ? 2 : 3];
}

static int file_of(u32 nr, const u64 call[7], struct stat_words *st)
{
	const u64 path = call[nr == NR_open ? 1 : 2], at = nr == NR_open ? (u64)AT_FDCWD : call[1];
	return sys4(NR_newfstatat, at, path, st, 0) == 0;
}

enum sf_fifo sf_fifo_kind(u32 nr, const u64 call[7])
{
	struct stat_words st;
	const u64 flags = flags_of(nr, call), mode = flags & O_ACCMODE;
	if ((flags & (O_NONBLOCK | O_DIRECTORY | O_PATH | O_EXCL)) || mode > 1 || !file_of(nr, call, &st) || (st.mode & 0170000) != 0010000)
		return SF_FIFO_NONE;
	return mode ? SF_FIFO_WRITES : SF_FIFO_READS;
}

/* With O_NONBLOCK, so that it does not wait: -EAGAIN if somebody writes who has written nothing yet, 0 if nobody does. */
static int has_writer(s32 fd)
{
	s32 to[2];
	if (sys2(NR_pipe2, to, 0) < 0)
		return 1; /* no number is free, as the call will say */
	const s64 r = sys4(NR_tee, fd, to[1], 1, SPLICE_F_NONBLOCK);
	sys1(NR_close, to[0]);
	sys1(NR_close, to[1]);
	return r > 0 || r == -EAGAIN;
}

/* Where it is open now. Negative: an errno. */
static s64 open_hidden(u32 index, u32 nr, const u64 call[7])
{
	u64 limit[2] = { 0, 0 };
	const u64 flags = flags_of(nr, call) | O_NONBLOCK | O_CLOEXEC;
	const s64 fd = nr == NR_open ? sys3(nr, call[1], flags, call[3]) : sys4(nr, call[1], call[2], flags, call[4]);
	if (fd < 0)
		return fd;
	sys4(NR_prlimit64, 0, RLIMIT_NOFILE, 0, limit);
	const u64 top = limit[0] < NUMBER_MAX ? limit[0] : NUMBER_MAX;
	const s64 kept = sys3(NR_fcntl, fd, F_DUPFD_CLOEXEC, top - 1 - index % top);
	sys1(NR_close, fd);
	return kept;
}

/* Nobody has closed the number since, nor given the name to another file. */
static int is_still(s32 fd, const struct stat_words *st)
{
	struct stat_words own;
	return fd > 0 && sys2(NR_fstat, fd, &own) == 0 && own.dev == st->dev && own.ino == st->ino;
}

/* Where it is open for this thread once somebody writes; SF_WOULD_WAIT: nobody does. */
s64 sf_fifo_reader(u32 nr, const u64 call[7])
{
	struct stat_words st;
	s32 *fd = &reader[app.current];
	if (!file_of(nr, call, &st))
		return -ENOENT;
	if (!is_still(*fd, &st)) {
		const s64 opened = open_hidden(app.current, nr, call);
		if (opened < 0)
			return opened;
		*fd = (s32)opened;
	}
	return has_writer(*fd) ? *fd : SF_WOULD_WAIT;
}

/* The call of the thread that runs has begun, and goes on as it did if all others have ended since. */
int sf_fifo_waits(void)
{
	return app.current < SF_THREADS_MAX && reader[app.current] > 0;
}

/* The call that gives it the number it would have. */
void sf_fifo_number(u32 nr, u64 call[7], u64 fd)
{
	const u64 flags = flags_of(nr, call);
	call[0] = NR_fcntl;
	call[1] = fd;
	call[2] = flags & O_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD;
	call[3] = 0;
}

/* The call was made. */
void sf_fifo_opened(s64 fd)
{
	if (fd >= 0)
		sys3(NR_fcntl, fd, F_SETFL, sys3(NR_fcntl, fd, 3 /* F_GETFL */, 0) & ~(s64)O_NONBLOCK);
	sf_fifo_leave(app.current);
}

/* A thread waits for no writer any more. */
void sf_fifo_leave(u32 index)
{
	if (reader[index] > 0)
		sys1(NR_close, reader[index]);
	reader[index] = 0;
}

/* A child has one thread, which is in no such call. */
void sf_fifo_born(void)
{
	for (u32 i = 0; i <= SF_THREADS_MAX; i++)
		sf_fifo_leave(i);
}
