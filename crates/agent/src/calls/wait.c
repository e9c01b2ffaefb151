/* Wait: calls that wait, interrupted and begun again.
 *
 * The launcher's nudge, a repair and a change of leader interrupt the leader's call without
 * the program's knowledge. Begun again, the call must not wait for its whole limit anew, and
 * what the kernel notes about the time left must reach the program once, at the end: the
 * limit lives in a copy that is counted down, and the program's memory is written when the
 * call is over. A signal that came meanwhile has found the program in its call, and ends it as
 * signal(7) says. Which event began, and when, is noted in shared memory, for the next leader.
 *
 * Not covered: limits that live in the kernel (SO_RCVTIMEO, SO_SNDTIMEO) and limits on CPU
 * clocks; these start anew. Absolute limits need none of this.
 * See nanosleep(2), ppoll(2), select(2), restart_syscall(2).
 */
#include "agent.h"
#include <asm/errno.h>

#define SECOND 1000000000ull
#define TIMER_ABSTIME 1

/* signal(7), "Interruption of system calls and library functions by signal handlers". */
#define AGAIN SF_WAITS
#define ENDS (SF_WAITS | SF_WAITS_ENDS)
#define LIMITED (SF_WAITS | SF_WAITS_ENDS | SF_WAITS_LIMIT)
const u8 sf_waits[512] = {
	[NR_read] = AGAIN,
	[NR_write] = AGAIN,
	[NR_open] = AGAIN,
	[NR_ioctl] = AGAIN,
	[NR_pread64] = AGAIN,
	[NR_pwrite64] = AGAIN,
	[NR_readv] = AGAIN,
	[NR_writev] = AGAIN,
	[NR_sendfile] = AGAIN,
	[NR_splice] = AGAIN,
	[NR_tee] = AGAIN,
	[NR_connect] = AGAIN,
	[NR_accept] = AGAIN,
	[NR_sendto] = AGAIN,
	[NR_recvfrom] = AGAIN,
	[NR_sendmsg] = AGAIN,
	[NR_recvmsg] = AGAIN,
	[NR_wait4] = AGAIN,
	[NR_fcntl] = AGAIN,
	[NR_flock] = AGAIN,
	[NR_mq_timedsend] = AGAIN,
	[NR_mq_timedreceive] = AGAIN,
	[NR_waitid] = AGAIN,
	[NR_openat] = AGAIN,
	[NR_accept4] = AGAIN,
	[NR_preadv] = AGAIN,
	[NR_pwritev] = AGAIN,
	[NR_sendmmsg] = AGAIN,
	[NR_getrandom] = AGAIN,
	[NR_preadv2] = AGAIN,
	[NR_pwritev2] = AGAIN,
	[NR_openat2] = AGAIN,
	[NR_recvmmsg] = AGAIN | SF_WAITS_LIMIT,
	[NR_futex] = AGAIN | SF_WAITS_LIMIT,
	[NR_pause] = ENDS,
	[NR_semop] = ENDS,
	[NR_msgsnd] = ENDS,
	[NR_msgrcv] = ENDS,
	[NR_rt_sigsuspend] = ENDS,
	[NR_poll] = LIMITED,
	[NR_select] = LIMITED,
	[NR_nanosleep] = LIMITED,
	[NR_rt_sigtimedwait] = LIMITED,
	[NR_semtimedop] = LIMITED,
	[NR_clock_nanosleep] = LIMITED,
	[NR_epoll_wait] = LIMITED,
	[NR_pselect6] = LIMITED,
	[NR_ppoll] = LIMITED,
	[NR_epoll_pwait] = LIMITED,
	[NR_epoll_pwait2] = LIMITED,
};

enum unit { NONE, MILLISECONDS, TIMEVAL, TIMESPEC };

/* The call in progress: the leader makes one at a time. */
static struct {
	enum unit unit;
	u32 arg; /* the argument that is the limit, or points to it */
	u64 total, start;
	u64 left_to; /* where the program wants what is left, or 0: written whatever the result */
	u64 rest_to; /* ... written with EINTR only (nanosleep) */
	s64 spec[2], rest[2];
} w;

static u64 now(void)
{
	s64 t[2] = { 0, 0 };
	if (sf_boot.vdso_ok)
		((s64(*)(u64, u64))sf_boot.vdso_clock_gettime)(1 /* CLOCK_MONOTONIC */, (u64)t);
	else
		sys2(NR_clock_gettime, 1, t);
	return (u64)t[0] * SECOND + (u64)t[1];
}

u64 sf_now(void)
{
	return now();
}

static void limit(enum unit unit, u32 arg, u64 left_to)
{
	w.unit = unit;
	w.arg = arg;
	w.left_to = left_to;
}

/* Which argument is a relative limit. */
static void find_wait(u32 nr, const u64 *a)
{
	w.unit = NONE;
	w.rest_to = 0;
	switch (nr) {
	case NR_poll: return limit(MILLISECONDS, 2, 0);
	case NR_epoll_wait:
	case NR_epoll_pwait: return limit(MILLISECONDS, 3, 0);
	case NR_select: return limit(TIMEVAL, 4, a[4]);
	case NR_pselect6: return limit(TIMESPEC, 4, a[4]);
	case NR_ppoll: return limit(TIMESPEC, 2, a[2]);
	case NR_recvmmsg: return limit(TIMESPEC, 4, a[4]);
	case NR_epoll_pwait2: return limit(TIMESPEC, 3, 0);
	case NR_semtimedop: return limit(TIMESPEC, 3, 0);
	case NR_rt_sigtimedwait: return limit(TIMESPEC, 2, 0);
	case NR_nanosleep: w.rest_to = a[1]; return limit(TIMESPEC, 0, 0);
	case NR_clock_nanosleep:
		/* CLOCK_REALTIME, MONOTONIC, BOOTTIME, TAI: as far as a sleep goes, one clock. */
		if ((a[1] & TIMER_ABSTIME) || (a[0] != 0 && a[0] != 1 && a[0] != 7 && a[0] != 11))
			return;
		w.rest_to = a[3];
		return limit(TIMESPEC, 2, 0);
	case NR_futex:
		if ((a[1] & FUTEX_CMD) == FUTEX_WAIT)
			return limit(TIMESPEC, 3, 0);
	}
}

/* The limit in nanoseconds; 0: none, no waiting at all, or one that the kernel will refuse. */
static u64 read(const u64 *a)
{
	s64 t[2];
	if (w.unit == MILLISECONDS)
		return (s32)a[w.arg] > 0 ? (u64)(u32)a[w.arg] * 1000000 : 0;
	if (!a[w.arg] || sf_user_bytes(t, a[w.arg], sizeof t) < 0)
		return 0;
	u64 unit = w.unit == TIMEVAL ? 1000 : 1;
	/* 2^33 s are 272 years: more needs no counting down, and would overflow. */
	if (t[0] < 0 || t[1] < 0 || t[0] >> 33 || (u64)t[1] * unit >= SECOND)
		return 0;
	return (u64)t[0] * SECOND + (u64)t[1] * unit;
}

/* No limit: a number below 0, or no address. */
static int without_limit(const u64 *a)
{
	return w.unit == MILLISECONDS ? (s32)a[w.arg] < 0 : !a[w.arg];
}

static void write_left(u64 *a)
{
	u64 gone = now() - w.start;
	u64 left = gone < w.total ? w.total - gone : 0;
	switch (w.unit) {
	case MILLISECONDS: a[w.arg] = (left + 999999) / 1000000; break;
	case TIMEVAL:
		left += 999;
		w.spec[0] = (s64)(left / SECOND);
		w.spec[1] = (s64)(left % SECOND / 1000);
		break;
	default: w.spec[0] = (s64)(left / SECOND); w.spec[1] = (s64)(left % SECOND);
	}
}

/* Before the call of an event, which may start again: call[1] is its first argument. */
void sf_limit_begin(u64 seq, u32 nr, u64 call[7])
{
	u64 *a = call + 1;
	int again = G->begun == seq;
	find_wait(nr, a);
	if (w.unit == NONE)
		return;
	w.total = read(a);
	if (!w.total) {
		w.unit = NONE;
		return;
	}
	if (!again)
		G->begun_at = now();
	w.start = G->begun_at;
	const u64 until = sf_try_deadline();
	if (until) { /* it has waited while others could go on */
		w.start = now();
		w.total = until > w.start ? until - w.start : 1;
	}
	write_left(a);
	if (w.unit != MILLISECONDS)
		a[w.arg] = (u64)w.spec;
	if (w.rest_to)
		a[nr == NR_nanosleep ? 1 : 3] = (u64)w.rest;
}

/* Before it is made again. */
void sf_limit_again(u64 call[7])
{
	if (w.unit != NONE)
		write_left(call + 1);
}

/* After it is over: its result. What a sleep has left it cannot always tell. */
s64 sf_limit_end(s64 ret)
{
	if (w.unit == NONE)
		return ret;
	w.unit = NONE;
	if (w.left_to)
		sf_user_put(w.left_to, w.spec, sizeof w.spec);
	if (w.rest_to && ret == -EINTR && sf_user_put(w.rest_to, w.rest, sizeof w.rest))
		return -EFAULT;
	return ret;
}

#define POLLIN 1
#define POLLOUT 4
#define MSG_DONTWAIT 0x40u
#define O_NONBLOCK 04000u
#define WNOHANG 1u
#define WEXITED 4u
#define WNOWAIT 0x01000000u
#define P_ALL 0
#define P_PID 1
#define P_PGID 2

/* Whether nothing can be moved now through the descriptor that is the call's first argument, and it waits then. */
static int is_blocked(u64 fd, u16 wanted, u64 flags)
{
	struct {
		s32 fd;
		u16 events, revents;
	} p = { (s32)fd, wanted, 0 };
	const s64 mode = sys3(NR_fcntl, fd, 3 /* F_GETFL */, 0);
	return mode >= 0 && !(mode & O_NONBLOCK) && !(flags & MSG_DONTWAIT) && sys3(NR_poll, &p, 1, 0) == 0;
}

/* Whether no child has what is waited for. `options` without WNOHANG. */
static int no_child_has(u64 type, u64 id, u64 options)
{
	struct sf_siginfo i = { 0 };
	return sf_sys(NR_waitid, type, id, (u64)&i, options | WNOHANG | WNOWAIT, 0, 0) == 0 && !i.signo;
}

/* As wait4(2) and waitid(2) name children: any, one, of a group. */
static int no_child_is_over(u32 nr, const u64 a[6])
{
	u64 own[6];
	sf_ward_asks(nr, a, own);
	const s32 pid = (s32)own[0];
	const u64 options = a[2] | WEXITED;
	if (nr == NR_waitid)
		return no_child_has(own[0], own[1], a[3]);
	if (pid == -1)
		return no_child_has(P_ALL, 0, options);
	if (pid > 0)
		return no_child_has(P_PID, (u64)pid, options);
	return no_child_has(P_PGID, (u64)(-(s64)pid), options);
}

/* Whether a call that goes on behind a handler with SA_RESTART would wait now. What cannot be asked without doing it does not. */
static int would_wait(u32 nr, const u64 a[6])
{
	s32 fd;
	u16 events;
	switch (nr) {
	case NR_read: return a[2] && is_blocked(a[0], POLLIN, 0);
	case NR_readv:
	case NR_accept:
	case NR_accept4: return is_blocked(a[0], POLLIN, 0);
	case NR_recvfrom: return is_blocked(a[0], POLLIN, a[3]);
	case NR_recvmsg: return is_blocked(a[0], POLLIN, a[2]);
	case NR_write: return a[2] && is_blocked(a[0], POLLOUT, 0);
	case NR_writev: return is_blocked(a[0], POLLOUT, 0);
	case NR_sendfile: return a[3] && is_blocked(a[0], POLLOUT, 0);
	case NR_splice:
	case NR_tee: return sf_splice_waits(nr, a, &fd, &events);
	case NR_sendto: return is_blocked(a[0], POLLOUT, a[3]);
	case NR_sendmsg: return is_blocked(a[0], POLLOUT, a[2]);
	case NR_wait4: return !(a[2] & WNOHANG) && no_child_is_over(nr, a);
	case NR_waitid: return !(a[3] & WNOHANG) && no_child_is_over(nr, a);
	}
	return 0;
}

/* How the call waits (sf_waits) if a signal that came before it is taken for one that came within. Handlers run at events:
 * a program that looks at a flag of its handler and then waits would else have missed the signal, however early that was.
 * Bare may answer the same: the call would wait, and the signal may come while it does. Not so one that waits under another
 * mask, whose program has blocked the signal until then, and one without a wait. */
u32 sf_waits_early(u32 nr, const u64 a[6])
{
	u64 call[7] = { nr, a[0], a[1], a[2], a[3], a[4], a[5] }, mask = 0;
	int sleeps = 0;
	switch (nr) {
	case NR_pause: break;
	case NR_pselect6:
		if (a[5] && sf_user_bytes(&mask, a[5], sizeof mask) < 0)
			return 0;
		break;
	case NR_ppoll: mask = a[3]; break;
	case NR_epoll_pwait:
	case NR_epoll_pwait2: mask = a[4]; break;
	case NR_nanosleep:
	case NR_clock_nanosleep: sleeps = 1; break;
	case NR_poll:
	case NR_select:
	case NR_epoll_wait: break;
	default: return would_wait(nr, a) ? sf_waits[nr & 511] : 0;
	}
	find_wait(nr, call + 1);
	const int waits = w.unit == NONE || (!sleeps && without_limit(call + 1)) || read(call + 1);
	w.unit = NONE;
	return mask || !waits ? 0 : sf_waits[nr & 511];
}

/* A signal has ended the call between two attempts to make it: its result. */
s64 sf_limit_cut(u64 seq, u32 nr, const u64 a[6])
{
	u64 call[7] = { nr, a[0], a[1], a[2], a[3], a[4], a[5] };
	sf_limit_begin(seq, nr, call);
	w.rest[0] = w.spec[0];
	w.rest[1] = w.spec[1];
	return sf_limit_end(-EINTR);
}
