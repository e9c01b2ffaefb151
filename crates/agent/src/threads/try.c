/* Try: calls of the leader that may wait, made so that they do not.
 *
 * While other threads could go on (thread.c), a call of one of them must not stop all. So the leader
 * asks first whether a descriptor is ready, or makes the call with its own flag for not waiting, and
 * what would wait is parked. Nothing has happened then: the call is made again as a new event.
 *
 *   read, accept, recv, write, send ...   poll(2) first; what another process may take meanwhile, see take.c;
 *                                         what is sent to a pipe or a stream moves in parts
 *   write, send ... of a message, or to a local socket
 *                                         without waiting, and again every few milliseconds
 *   sendfile                              as a write, in parts of which the socket has room for one
 *   splice, tee                           as a read and a write; to a socket less than is asked for
 *   poll, select, epoll_wait              with no time; what they have stored is put back
 *   nanosleep, clock_nanosleep            the agent's clock
 *   connect                               without waiting; then as a write
 *   open, openat of a FIFO, wait4, waitid, flock, fcntl, semop, msgsnd, msgrcv, sigtimedwait
 *                                         without waiting, and again every few milliseconds
 *   futex, on a word of several processes looked at every few milliseconds: whether a wake has counted it (parked.c)
 *   pause, sigsuspend                     parked until a signal
 *
 * Not covered: ioctl(2) that wait, openat2(2) of a FIFO, getrandom before the kernel has any: these stop all threads while they wait.
 * SO_RCVTIMEO and SO_SNDTIMEO are not looked at while a thread is parked.
 */
#include "agent.h"
#include <asm/errno.h>

#define SECOND 1000000000ull
#define RETRY 2000000ull /* nanoseconds */
#define O_NONBLOCK 04000u
#define SOCK_STREAM 1
#define MSG_OOB 1u
#define MSG_DONTWAIT 0x40u
#define MSG_ERRQUEUE 0x2000u
#define POLLIN 1
#define POLLOUT 4
#define SPLICE_F_NONBLOCK 2u
#define SPLICE_F_ALL 15u
#define PIPE_PART 4096u /* a pipe that takes anything takes a page (pipe(7), PIPE_BUF) */

enum undo { NOTHING, POLLS, SELECTS, CONNECTS, INFO, OPENS, TAKES };

/* The call in progress. */
static struct {
	enum undo undo;
	u64 deadline, retry;
	s64 answer; /* of a call that is not made */
	u64 alone; /* of a process without threads, whose call is made again: its deadline (ipc.c) */
	s64 none;      /* the result that means: it would have waited */
	s64 none_too;
	u64 left_to, left_unit; /* where the program wants what is left of the time, or 0; nanoseconds in a fraction of a second */
	u32 cuts, part; /* it moves at most so much, and the rest later */
	struct {
		u64 name, namelen, iov, iovlen, control, controllen, flags;
	} message; /* struct msghdr, of a writev(2) */
	u64 saved_n;
	s64 zero[2];
	u8 saved[16384], ops[512 * 6]; /* above SEMOPM, of struct sembuf */
} q;

static u64 limit_of(u64 at, u64 unit)
{
	s64 t[2];
	if (!at || sf_user_bytes(t, at, sizeof t) < 0 || t[0] < 0 || t[0] >> 33)
		return 0; /* none, or one that the kernel refuses */
	return (u64)t[0] * SECOND + (u64)t[1] * unit;
}

/* The end of the time of a call that is made again, CLOCK_MONOTONIC in nanoseconds; 0: it has none, or begins. */
u64 sf_try_deadline(void)
{
	return app.threads ? sf_thread_now()->deadline : q.alone;
}

/* 1: the call's time is over, or it has none. `left`: nanoseconds, if it has a limit. */
static int is_over(int limited, u64 left)
{
	u64 before = sf_try_deadline(), now = sf_now();
	q.deadline = before ? before : limited ? now + left : 0;
	return limited && q.deadline <= now;
}

static int nonblocking(u64 fd)
{
	s64 flags = sys3(NR_fcntl, fd, 3 /* F_GETFL */, 0);
	return flags < 0 || (flags & O_NONBLOCK);
}

static int socket_type(u64 fd)
{
	u32 type = 0, bytes = sizeof type;
	return sf_sys(NR_getsockopt, fd, 1 /* SOL_SOCKET */, 3 /* SO_TYPE */, (u64)&type, (u64)&bytes, 0) == 0 ? (int)type : 0;
}

static int is_local(u64 fd)
{
	u32 domain = 0, bytes = sizeof domain;
	return sf_sys(NR_getsockopt, fd, 1 /* SOL_SOCKET */, 39 /* SO_DOMAIN */, (u64)&domain, (u64)&bytes, 0) == 0 &&
	       domain == 1 /* AF_UNIX */;
}

static int is_pipe(u64 fd)
{
	u32 st[36]; /* struct stat: st_mode is word 6 */
	return sys2(NR_fstat, fd, st) == 0 && (st[6] & 0170000) == 0010000;
}

int sf_is_ready(u64 fd, u16 events)
{
	struct {
		s32 fd;
		u16 events, revents;
	} p = { (s32)fd, events, 0 };
	return sys3(NR_poll, &p, 1, 0) != 0;
}

/* To a pipe: as much as it takes at once if it takes anything. */
static void page_to_pipe(u32 nr, u64 call[7])
{
	if (nr == NR_writev) {
		q.cuts = (u32)sf_cut_vector(&call[2], &call[3], PIPE_PART);
	} else if (nr == NR_write && call[3] > PIPE_PART) {
		call[3] = PIPE_PART;
		q.cuts = 1;
	}
}

/* To a socket: becomes the call that has a flag for not waiting. 0: there is none. */
static int without_waiting(u32 nr, u64 call[7])
{
	switch (nr) {
	case NR_write: call[4] = call[5] = call[6] = 0; break;
	case NR_sendto: break;
	case NR_writev:
		if (call[3] > 1024 /* UIO_MAXIOV */)
			return 0; /* EINVAL; sendmsg(2) says EMSGSIZE */
		memset(&q.message, 0, sizeof q.message);
		q.message.iov = call[2];
		q.message.iovlen = call[3];
		call[2] = (u64)&q.message;
		call[3] = MSG_DONTWAIT;
		call[0] = NR_sendmsg;
		return 1;
	case NR_sendmsg: call[3] |= MSG_DONTWAIT; return 1;
	case NR_sendmmsg: break;
	default: return 0;
	}
	call[0] = nr == NR_sendmmsg ? nr : NR_sendto;
	call[4] |= MSG_DONTWAIT;
	return 1;
}

/* Of a stream as much as goes at once, and a message as a whole. poll(2) finds no room in a local socket of which a quarter is in use,
 * and knows nothing of the queue of a receiver that a socket is not connected to. */
static void sends_at_once(u32 nr, u64 call[7], int type, int local)
{
	if (!without_waiting(nr, call))
		return;
	q.none = -EAGAIN;
	q.cuts = type == SOCK_STREAM && nr != NR_sendmmsg;
	if (local || type != SOCK_STREAM)
		q.retry = sf_now() + RETRY;
}

/* A write to a blocking descriptor that can be written to: as much as goes at once, which of little is all. */
static void in_parts(u32 nr, u64 call[7])
{
	const int of_one = nr == NR_write || (nr == NR_sendto && !call[5] /* no address */);
	if ((of_one && call[3] <= PIPE_PART) || nonblocking(call[1]))
		return;
	const int type = socket_type(call[1]);
	if (type)
		sends_at_once(nr, call, type, 0);
	else if (is_pipe(call[1]))
		page_to_pipe(nr, call);
}

/* How much the program has asked to be moved, without what has been moved before. */
static u64 asked_to_move(u32 nr, const u64 a[6])
{
	u64 n;
	if (nr == NR_writev || nr == NR_sendmsg)
		return sf_rest_of_vector(nr, a, &n);
	return a[nr == NR_sendfile ? 3 : 2];
}

static enum sf_try ready(u32 nr, u64 call[7], int sends)
{
	u64 flags = nr == NR_sendto || nr == NR_recvfrom     ? call[4]
		    : nr == NR_sendmsg || nr == NR_recvmsg   ? call[3]
		    : nr == NR_recvmmsg || nr == NR_sendmmsg ? call[4]
							     : 0;
	if ((flags & MSG_DONTWAIT) || (!sends && (flags & (MSG_OOB | MSG_ERRQUEUE))))
		return SF_TRY_GO; /* recv(2) waits for neither */
	if (sends && is_local(call[1])) {
		if (!nonblocking(call[1]))
			sends_at_once(nr, call, socket_type(call[1]), 1);
		return q.retry ? SF_TRY_CHECK : SF_TRY_GO;
	}
	if (!sf_is_ready(call[1], sends ? POLLOUT : POLLIN))
		return nonblocking(call[1]) ? SF_TRY_GO : SF_TRY_PARK;
	if (sends)
		in_parts(nr, call);
	if (nr == NR_recvfrom && (flags & 0x122) == 0x100 /* MSG_WAITALL, without MSG_PEEK and MSG_TRUNC */ &&
	    socket_type(call[1]) == SOCK_STREAM) {
		call[4] |= MSG_DONTWAIT;
		q.none = -EAGAIN;
		q.cuts = 1;
	}
	if (!sends && !q.cuts && sf_take(nr, call) == SF_TRY_CHECK)
		q.undo = TAKES;
	return q.cuts || q.retry || q.undo == TAKES ? SF_TRY_CHECK : SF_TRY_GO;
}

/* sendfile(2) has no flag for not waiting, and to set the file's own would reach others that have it. A stream that can be written to
 * has room for a third of its buffer (tcp_poll; unix_poll: three quarters), which also counts what the kernel keeps beside the bytes. */
static u64 room_of_stream(u64 fd)
{
	u32 room = 0, bytes = sizeof room;
	if (socket_type(fd) != SOCK_STREAM || nonblocking(fd) ||
	    sf_sys(NR_getsockopt, fd, 1 /* SOL_SOCKET */, 7 /* SO_SNDBUF */, (u64)&room, (u64)&bytes, 0) < 0)
		return ~0ull; /* a pipe takes what it has room for */
	return room / 8 < PIPE_PART ? PIPE_PART : room / 8 & ~(PIPE_PART - 1);
}

static enum sf_try sends_file(u64 call[7])
{
	if (!sf_is_ready(call[1], POLLOUT))
		return nonblocking(call[1]) ? SF_TRY_GO : SF_TRY_PARK;
	const u64 room = room_of_stream(call[1]);
	if (call[4] <= room)
		return SF_TRY_GO;
	call[4] = room;
	q.cuts = 1;
	return SF_TRY_CHECK;
}

/* splice(2), tee(2): 1: the call would wait, for this end. Its own flag is for pipes, and for a local socket that it reads. */
int sf_splice_waits(u32 nr, const u64 a[6], s32 *fd, u16 *events)
{
	const int tees = nr == NR_tee;
	const u64 ends[2] = { a[0], a[tees ? 1 : 2] }, bytes = a[tees ? 2 : 4];
	const u32 flags = (u32)a[tees ? 3 : 5];
	const int pipes[2] = { is_pipe(ends[0]), is_pipe(ends[1]) };
	int at_once = flags & SPLICE_F_NONBLOCK;
	for (int k = 0; k < 2; k++) {
		at_once |= pipes[k] && nonblocking(ends[k]);
		if (!bytes || flags > SPLICE_F_ALL || (pipes[k] ? !tees && a[1 + 2 * k] : tees || !pipes[!k]))
			return 0; /* the kernel refuses it, or has nothing to do */
	}
	for (int k = 0; k < 2; k++) {
		*fd = (s32)ends[k];
		*events = k ? POLLOUT : POLLIN;
		const int never = pipes[k] ? at_once : nonblocking(ends[k]) || (at_once && !k && is_local(ends[k]));
		if (!never && !sf_is_ready(ends[k], *events))
			return 1;
	}
	return 0;
}

/* A pipe has what it had a moment ago, and the kernel waits for the first bytes alone; but what goes to a stream all has to go. */
static enum sf_try splices(u32 nr, u64 call[7])
{
	s32 fd;
	u16 events;
	if (sf_splice_waits(nr, call + 1, &fd, &events))
		return SF_TRY_PARK;
	const u64 room = nr == NR_splice ? room_of_stream(call[3]) : ~0ull;
	if (call[5] > room && nr == NR_splice)
		call[5] = room; /* it may move less than it is asked to (splice(2)) */
	return SF_TRY_GO;
}

static int save(u64 at, u64 n)
{
	if (q.saved_n + n > sizeof q.saved || sf_user_bytes(q.saved + q.saved_n, at, n) < 0)
		return 0;
	q.saved_n += n;
	return 1;
}

static void put_back(u64 at, u64 n, u64 *from)
{
	sf_user_put(at, q.saved + *from, n);
	*from += n;
}

/* What select(2), pselect6 and ppoll leave of their limit. */
static void tell_left(void)
{
	const u64 now = sf_now(), left = q.deadline > now ? q.deadline - now : 0;
	const s64 t[2] = { (s64)(left / SECOND), (s64)(left % SECOND / q.left_unit) };
	if (q.left_to && q.deadline)
		sf_user_put(q.left_to, t, sizeof t);
}

static enum sf_try polls(u64 call[7], int limited, u64 left, u32 arg, u64 value)
{
	if (limited && !left)
		return SF_TRY_GO; /* it asks for no time */
	int over = is_over(limited, left);
	call[arg] = value;
	q.none = over ? 1 : 0; /* nothing is an answer when the time is over */
	if (over)
		tell_left();
	return over ? SF_TRY_GO : SF_TRY_CHECK;
}

static enum sf_try retries(s64 none, s64 none_too)
{
	q.none = none;
	q.none_too = none_too;
	q.retry = sf_now() + RETRY;
	return SF_TRY_CHECK;
}

/* Semaphore operations, each with IPC_NOWAIT; one that has it already does not wait. */
static enum sf_try semaphores(u64 call[7], u64 limit)
{
	u16 *op = (u16 *)q.ops;
	u64 n = call[3];
	if (n > sizeof q.ops / 6 || sf_user_bytes(q.ops, call[2], n * 6) < 0)
		return SF_TRY_GO;
	const int over = is_over(limit != 0, limit_of(limit, 1));
	for (u64 i = 0; i < n; i++) {
		if (op[3 * i + 2] & 04000)
			return SF_TRY_GO;
		op[3 * i + 2] |= 04000;
	}
	call[2] = (u64)q.ops;
	return over ? SF_TRY_GO : retries(-EAGAIN, -EAGAIN); /* EAGAIN is what semtimedop(2) says then as well */
}

static enum sf_try answers(s64 r)
{
	q.answer = r;
	return SF_TRY_ANSWERED;
}

/* What is left of a limit of FUTEX_WAIT, or of FUTEX_WAIT_BITSET, which is a time. */
u64 sf_futex_left(u64 op, u64 limit)
{
	u64 left = limit_of(limit, 1);
	if ((op & FUTEX_CMD) == FUTEX_WAIT || !limit)
		return left;
	s64 now[2] = { 0, 0 };
	sys2(NR_clock_gettime, op & 256 /* FUTEX_CLOCK_REALTIME */ ? 0 : 1, now);
	const u64 is = (u64)now[0] * SECOND + (u64)now[1];
	return left > is ? left - is : 0;
}

/* The running thread waits no longer, and answers `r`, if no wake has come before. */
static enum sf_try waits_no_longer(u64 key, s64 r)
{
	return answers(sf_parked_leaves(app.current) && sf_parked_takes(key, 1) ? 0 : r);
}

/* A wait for a word of several processes. Where no other thread could go on it is the kernel's, if it begins there: who is parked
 * stays so, since a wake may come at any time. Who comes looks at the word, as the kernel does, and once more when a wake finds it. Who is
 * there looks at it as well, since others than processes of the program may change it, and wake: the wait ends as if they had
 * (futex(2): a wake may be spurious). */
static enum sf_try word(u64 call[7])
{
	const u32 op = (u32)call[2] & FUTEX_CMD, bitset = op == FUTEX_WAIT ? ~0u : (u32)call[6];
	const u64 key = sf_domain_key(me.regs->rdi);
	const int again = sf_thread_now()->retry != 0;
	u64 stands = key;
	u32 v;
	s64 t[2];
	if (op != FUTEX_WAIT && op != FUTEX_WAIT_BITSET)
		return SF_TRY_GO;
	if (!sf_parked_sound())
		return answers(SF_NOT_MADE);
	if ((call[1] & 3) || !bitset || sf_user_bytes(&v, call[1], 4) < 0 ||
	    (call[4] && (sf_user_bytes(t, call[4], sizeof t) < 0 || t[0] < 0 || (u64)t[1] >= SECOND)))
		return SF_TRY_GO; /* the kernel refuses it */
	if (sf_parked_takes(key, again))
		return answers(0);
	if (!again && (app.threads == 1 || !sf_threads_may_wake()))
		return SF_TRY_GO;
	const int over = is_over(call[4] != 0, sf_futex_left(call[2], call[4]));
	const int there = again && sf_parked_stands(&stands);
	if (over)
		return waits_no_longer(key, v == (u32)call[3] || again ? -ETIMEDOUT : -EAGAIN);
	if (stands == key && v != (u32)call[3])
		return waits_no_longer(key, again ? 0 : -EAGAIN);
	if (again && !there)
		return answers(0);
	if (again && stands == key && sf_owner_died((const u64[6]){ me.regs->rdi, call[2], call[3], 0, 0, call[6] }))
		return waits_no_longer(key, -EOWNERDEAD);
	if (!again && sf_parked_begins(key, bitset) && sf_user_bytes(&v, call[1], 4) == 0 && v != (u32)call[3])
		return waits_no_longer(key, -EAGAIN);
	q.retry = sf_now() + RETRY;
	return SF_TRY_PARK;
}

/* Before the call; what is in `call` then is made. */
/* A sleep by a clock that can be looked at. */
static enum sf_try sleeps(u64 call[7])
{
	u64 at = limit_of(call[3], 1);
	if (call[1] > 1 && call[1] != 7 && call[1] != 11)
		return SF_TRY_GO; /* a clock of processor time, or none */
	if (call[2] & 1 /* TIMER_ABSTIME */) {
		s64 now[2] = { 0, 0 };
		sys2(NR_clock_gettime, call[1], now);
		u64 is = (u64)now[0] * SECOND + (u64)now[1];
		at = at > is ? at - is : 0;
	}
	if (!at)
		return SF_TRY_GO;
	if (!is_over(1, at))
		return SF_TRY_PARK;
	call[2] = 0;
	call[3] = (u64)q.zero;
	return SF_TRY_GO;
}

/* Calls that wait for time to pass, or for a signal. */
static enum sf_try waits_for_time(u32 nr, u64 call[7])
{
	const u64 zero = (u64)q.zero;
	switch (nr) {
	case NR_nanosleep:
		if (!call[1] || !limit_of(call[1], 1))
			return SF_TRY_GO;
		if (!is_over(1, limit_of(call[1], 1)))
			return SF_TRY_PARK;
		call[1] = zero;
		return SF_TRY_GO;
	case NR_clock_nanosleep: return sleeps(call);
	case NR_pause:
	case NR_rt_sigsuspend: return SF_TRY_PARK;
	case NR_rt_sigtimedwait: {
		u64 left = limit_of(call[3], 1), limited = call[3] != 0;
		if (limited && !left)
			return SF_TRY_GO;
		int over = is_over(limited != 0, left);
		call[3] = zero;
		return over ? SF_TRY_GO : retries(-EAGAIN, -EAGAIN);
	}
	}
	return SF_TRY_GO;
}

/* A FIFO for one direction (fifo.c). */
static enum sf_try opens(u32 nr, u64 call[7])
{
	s64 fd;
	switch (app.threads ? sf_fifo_kind(nr, call) : SF_FIFO_NONE) {
	case SF_FIFO_NONE: break;
	case SF_FIFO_WRITES:
		call[nr == NR_open ? 2 : 3] |= O_NONBLOCK;
		q.undo = OPENS;
		return retries(-ENXIO, -ENXIO);
	case SF_FIFO_READS:
		fd = sf_fifo_reader(nr, call);
		if (fd == SF_WOULD_WAIT) {
			q.retry = sf_now() + RETRY;
			return SF_TRY_PARK;
		}
		if (fd < 0)
			break; /* the kernel says why */
		sf_fifo_number(nr, call, (u64)fd);
		q.undo = OPENS;
		return SF_TRY_CHECK;
	}
	return SF_TRY_GO;
}

/* Calls with a way of their own not to wait: it is made so, and again every few milliseconds. */
static enum sf_try asks_again(u32 nr, u64 call[7])
{
	switch (nr) {
	case NR_wait4:
		if (call[3] & 1 /* WNOHANG */)
			return SF_TRY_GO;
		call[3] |= 1;
		return retries(0, 0);
	case NR_waitid:
		if (call[4] & 1 || !call[3] || !save(call[3], 28))
			return SF_TRY_GO;
		call[4] |= 1;
		q.undo = INFO;
		return retries(0, 0);
	case NR_flock:
		if (call[2] & 4 /* LOCK_NB */)
			return SF_TRY_GO;
		call[2] |= 4;
		return retries(-EAGAIN, -EAGAIN);
	case NR_fcntl:
		if ((u32)call[2] != 7 /* F_SETLKW */ && (u32)call[2] != 38 /* F_OFD_SETLKW */)
			return SF_TRY_GO;
		call[2]--;
		return retries(-EAGAIN, -EACCES);
	case NR_open:
	case NR_openat: return opens(nr, call);
	case NR_semop: return semaphores(call, 0);
	case NR_semtimedop: {
		u64 limit = call[4];
		call[4] = 0;
		return semaphores(call, limit);
	}
	case NR_msgsnd:
		if (call[4] & 04000 /* IPC_NOWAIT */)
			return SF_TRY_GO;
		call[4] |= 04000;
		return retries(-EAGAIN, -EAGAIN);
	case NR_msgrcv:
		if (call[5] & 04000)
			return SF_TRY_GO;
		call[5] |= 04000;
		return retries(-ENOMSG, -ENOMSG);
	}
	return SF_TRY_GO;
}

/* Calls that wait for a descriptor. */
static enum sf_try waits_for_descriptor(u32 nr, u64 call[7])
{
	const u64 zero = (u64)q.zero;
	switch (nr) {
	case NR_read:
	case NR_readv:
	case NR_accept:
	case NR_accept4:
	case NR_recvfrom:
	case NR_recvmsg:
	case NR_recvmmsg:
	case NR_preadv2:
	case NR_mq_timedreceive: return ready(nr, call, 0);
	case NR_write:
	case NR_writev:
	case NR_sendto:
	case NR_sendmsg:
	case NR_sendmmsg:
	case NR_pwritev2:
	case NR_mq_timedsend: return ready(nr, call, 1);
	case NR_sendfile: return sends_file(call);
	case NR_splice:
	case NR_tee: return splices(nr, call);
	case NR_poll:
	case NR_ppoll:
		if (!save(call[1], (u64)(u32)call[2] * 8))
			return SF_TRY_GO;
		q.undo = POLLS;
		if (nr == NR_poll)
			return polls(call, (s32)call[3] >= 0, (u64)(u32)call[3] * 1000000, 3, 0);
		q.left_to = call[3];
		return polls(call, call[3] != 0, limit_of(call[3], 1), 3, zero);
	case NR_select:
	case NR_pselect6:
		for (int i = 2; i < 5; i++)
			if (call[i] && !save(call[i], ((u64)(u32)call[1] + 63) / 64 * 8))
				return SF_TRY_GO;
		q.undo = SELECTS;
		q.left_to = call[5];
		q.left_unit = nr == NR_select ? 1000 : 1;
		return polls(call, call[5] != 0, limit_of(call[5], q.left_unit), 5, zero);
	case NR_epoll_wait:
	case NR_epoll_pwait: return polls(call, (s32)call[4] >= 0, (u64)(u32)call[4] * 1000000, 4, 0);
	case NR_epoll_pwait2: return polls(call, call[4] != 0, limit_of(call[4], 1), 4, zero);
	case NR_connect:
		if (nonblocking(call[1]))
			return SF_TRY_GO;
		sys3(NR_fcntl, call[1], 4 /* F_SETFL */, sys3(NR_fcntl, call[1], 3, 0) | O_NONBLOCK);
		q.undo = CONNECTS;
		q.none = -EINPROGRESS;
		q.none_too = -EALREADY;
		return SF_TRY_CHECK;
	}
	return SF_TRY_GO;
}

enum sf_try sf_try(u32 nr, u64 call[7])
{
	q.undo = NOTHING;
	q.deadline = q.retry = q.saved_n = q.cuts = 0;
	q.left_to = 0;
	q.left_unit = 1;
	q.none = q.none_too = SF_WOULD_WAIT;
	q.zero[0] = q.zero[1] = 0;
	switch (nr) {
	case NR_futex: return word(call);
	case NR_nanosleep:
	case NR_clock_nanosleep:
	case NR_pause:
	case NR_rt_sigsuspend:
	case NR_rt_sigtimedwait: return waits_for_time(nr, call);
	case NR_wait4:
	case NR_waitid:
	case NR_flock:
	case NR_fcntl:
	case NR_open:
	case NR_openat:
	case NR_semop:
	case NR_semtimedop:
	case NR_msgsnd:
	case NR_msgrcv: return asks_again(nr, call);
	}
	return waits_for_descriptor(nr, call);
}

/* After it: what the program is told, or SF_WOULD_WAIT, and then nothing has happened. */
s64 sf_tried(u32 nr, const u64 a[6], s64 r)
{
	u64 from = 0;
	u32 info;
	int none = r == q.none || r == q.none_too;
	q.part = q.cuts && r > 0 && (u64)r < asked_to_move(nr, a);
	switch (q.undo) {
	case POLLS:
		if (none)
			put_back(a[0], (u64)(u32)a[1] * 8, &from);
		break;
	case SELECTS:
		for (int i = 1; i < 4 && none; i++)
			if (a[i])
				put_back(a[i], ((u64)(u32)a[0] + 63) / 64 * 8, &from);
		break;
	case CONNECTS: sys3(NR_fcntl, a[0], 4 /* F_SETFL */, sys3(NR_fcntl, a[0], 3, 0) & ~(s64)O_NONBLOCK); break;
	case INFO: /* nobody has changed its state: the number is 0 (waitid(2)) */
		none = none && sf_user_bytes(&info, a[2] + 16, 4) == 0 &&
		       !info; /* si_pid: behind four bytes that the kernel does not write */
		if (none)
			put_back(a[2], 28, &from);
		break;
	case OPENS: sf_fifo_opened(r); break;
	case TAKES: none = sf_took(a[0], r); break;
	case NOTHING: break;
	}
	if (!none) {
		tell_left();
		return r;
	}
	/* The kernel has acted, and nothing has come of it: no leader has to know. */
	me.made = 0;
	store(&G->slot[0].made, 0);
	return SF_WOULD_WAIT;
}

s64 sf_try_answer(void)
{
	return q.answer;
}

int sf_try_cut(void)
{
	return (int)q.part;
}

/* It is made again at once: its time goes on. 0: it begins. */
void sf_try_on(u64 deadline)
{
	if (app.threads)
		sf_thread_now()->deadline = deadline;
	q.alone = deadline;
}

/* How long the one that is parked waits. */
void sf_try_until(u64 *deadline, u64 *retry)
{
	*deadline = q.deadline;
	*retry = q.retry;
}
