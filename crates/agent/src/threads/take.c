/* Take: calls that take from a descriptor from which other processes may take as well.
 *
 * poll(2) has said that something is there (try.c), and another process may have it before the call is made. A blocking call would
 * wait then, and with it all threads of the process, of which one may be what the others wait for: a pipe with the tokens of
 * make(1), a socket at which several processes accept.
 *
 *   recvfrom, recvmsg                        MSG_DONTWAIT
 *   read, readv of a pipe or a socket        preadv2(2) with RWF_NOWAIT
 *   accept, and reads of anything else       as they are, and a timer of the agent's interrupts them
 *
 * What comes too late has taken nothing, and its thread is parked until the descriptor is ready again.
 *
 * Not covered: recvmsg with MSG_WAITALL, recvmmsg, preadv2, mq_timedreceive; no timer left (RLIMIT_SIGPENDING).
 * See preadv2(2), recv(2), timer_create(2).
 */
#include "agent.h"
#include <asm/errno.h>

#define MSG_WAITALL 0x100u
#define MSG_DONTWAIT 0x40u
#define RWF_NOWAIT 8u
#define O_NONBLOCK 04000u
#define S_IFMT 0170000u
#define S_IFIFO 0010000u
#define S_IFSOCK 0140000u
#define S_IFREG 0100000u
#define S_IFDIR 0040000u
#define S_IFBLK 0060000u
#define CLOCK_MONOTONIC 1
#define SIGSYS 31
#define SI_TIMER (-2)
#define SIGEV_THREAD_ID 4

/* How long a call that finds nothing waits, and with it all threads: as often as a parked one looks (try.c). Nanoseconds. */
#define TOO_LATE 2000000

/* The call in progress. */
static struct {
	int timed, expired;
	s32 timer;
	u64 part[2]; /* struct iovec, of a read(2) */
} take;

/* The kernel has no RWF_NOWAIT for pipes (Linux before 6.4). */
static int waits_always;

/* A timer that interrupts the call as the launcher's nudge does. 0: there is none. */
static int begins_timer(void)
{
	const struct {
		u64 value;
		s32 signo, notify, tid, pad[11];
	} e = { .value = (u64)&take, .signo = SIGSYS, .notify = SIGEV_THREAD_ID, .tid = (s32)sys0(NR_gettid) };
	const s64 once[4] = { 0, 0, 0, TOO_LATE };
	if (sys3(NR_timer_create, CLOCK_MONOTONIC, &e, &take.timer) < 0)
		return 0;
	sys4(NR_timer_settime, (u64)take.timer, 0, once, 0);
	return 1;
}

static enum sf_try timed(u64 fd)
{
	const s64 flags = sys3(NR_fcntl, fd, 3 /* F_GETFL */, 0);
	if (flags < 0 || (flags & O_NONBLOCK) || !begins_timer())
		return SF_TRY_GO;
	take.timed = 1;
	return SF_TRY_CHECK;
}

static enum sf_try reads(u32 nr, u64 call[7])
{
	u32 st[36]; /* struct stat: st_mode is word 6 */
	if (sys2(NR_fstat, (u32)call[1], st) < 0)
		return SF_TRY_GO;
	switch (st[6] & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFBLK: return SF_TRY_GO;
	case S_IFIFO:
	case S_IFSOCK:
		if (!waits_always)
			break;
		return timed(call[1]);
	default: return timed(call[1]);
	}
	if (nr == NR_read) {
		take.part[0] = call[2];
		take.part[1] = call[3];
		call[2] = (u64)take.part;
		call[3] = 1;
	}
	call[0] = NR_preadv2;
	call[4] = ~0ull; /* no offset */
	call[5] = 0;
	call[6] = RWF_NOWAIT;
	return SF_TRY_CHECK;
}

/* A descriptor that has something, a moment ago. SF_TRY_CHECK: sf_took has to hear of the result. */
enum sf_try sf_take(u32 nr, u64 call[7])
{
	take.timed = take.expired = 0;
	switch (nr) {
	case NR_recvfrom:
		if (call[4] & MSG_WAITALL)
			return SF_TRY_GO;
		call[4] |= MSG_DONTWAIT;
		return SF_TRY_CHECK;
	case NR_recvmsg:
		if (call[3] & MSG_WAITALL)
			return SF_TRY_GO;
		call[3] |= MSG_DONTWAIT;
		return SF_TRY_CHECK;
	case NR_read:
	case NR_readv: return reads(nr, call);
	case NR_accept:
	case NR_accept4: return timed(call[1]);
	}
	return SF_TRY_GO;
}

/* The call was made. 1: it has taken nothing, and would have waited. */
int sf_took(u64 fd, s64 r)
{
	if (take.timed) {
		sys1(NR_timer_delete, (u64)take.timer);
		take.timed = 0;
		return (r == -EINTR || r == SF_NOT_MADE) && take.expired && !sf_signal_pending();
	}
	if (r == -EOPNOTSUPP)
		waits_always = 1; /* made again with a timer */
	else if (r != -EAGAIN)
		return 0;
	return r == -EOPNOTSUPP || !(sys3(NR_fcntl, fd, 3 /* F_GETFL */, 0) & O_NONBLOCK);
}

/* A signal: whether it is the timer's, which the program does not hear of. */
int sf_take_ends(s32 signo, const struct sf_siginfo *i)
{
	if (signo != SIGSYS || i->code != SI_TIMER || i->words[1] != (u64)&take)
		return 0;
	take.expired = 1;
	return 1;
}

int sf_take_is_late(void)
{
	return take.timed && take.expired;
}
