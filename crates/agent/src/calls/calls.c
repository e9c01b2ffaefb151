/* Calls: one system call of the program, from claim to return.
 *
 *   arrive ──► all equal? ──► leader acts ──► result in the log ──► followers copy ──► return
 *                 │ no                            ▲
 *                 ▼                               └ queries: the leader does not wait
 *               pause (log.c), then start again
 *
 * What a call is comes from the tables alone (calls.def and its sub-tables); this file
 * holds what no table can say. Nothing here runs before the group agreed that it should,
 * except queries, which change nothing.
 */
#include "agent.h"
#include "ground/stat.h"

#define SF_TABLE_ROW(nr, nm, cl, h, e, a0, a1, a2, a3, a4, a5, nt) \
	[nr] = { .name = #nm, .class = SF_##cl, .handler = SF_H_##h, .err = e, .arg = { a0, a1, a2, a3, a4, a5 }, .note = nt },
#include <asm/errno.h>
const struct sf_call sf_calls[512] = {
#define CALL SF_TABLE_ROW
#include "tables/calls.def"
};
#undef CALL

static const struct sf_sub ioctls[] = {
#define SUB(c, n, cl, e, a, nt) { c, SF_##cl, e, a, n, nt },
#include "tables/ioctl.def"
};
static const struct sf_sub fcntls[] = {
#define SUB(c, n, cl, e, a, nt) { c, SF_##cl, e, a, n, nt },
#include "tables/fcntl.def"
};
static const struct sf_sub prctls[] = {
#define SUB(c, n, cl, e, a, nt) { c, SF_##cl, e, a, n, nt },
#include "tables/prctl.def"
};
static const struct sf_sub arch_prctls[] = {
#define SUB(c, n, cl, e, a, nt) { c, SF_##cl, e, a, n, nt },
#include "tables/arch_prctl.def"
};
static const struct sf_sub semctls[] = {
#define SUB(c, n, cl, e, a, nt) { c, SF_##cl, e, a, n, nt },
#include "tables/semctl.def"
};
static const struct sf_sub shmctls[] = {
#define SUB(c, n, cl, e, a, nt) { c, SF_##cl, e, a, n, nt },
#include "tables/shmctl.def"
};
static const struct sf_sub msgctls[] = {
#define SUB(c, n, cl, e, a, nt) { c, SF_##cl, e, a, n, nt },
#include "tables/msgctl.def"
};

static const struct sockopt {
	u32 level, name;
	u8 class[2];
	int16_t err[2];
} sockopts[] = {
											     /* get, set */
#define SOCKOPT(l, n, t, gc, ge, sc, se, nt) { l, n, { SF_##gc, SF_##sc }, { ge, se } },
#include "tables/sockopt.def"
};

void sf_end(u32 end, u32 nr, s64 value, const struct sf_regs *r)
{
	if (me.slot != 0)
		sf_follow_end();
	if (me.slot != 0 && (G->options & SF_O_PAIR))
		sf_pair_ends(); /* its parent may lead before it has heard how it ended */
	if (me.slot == 0 && !load(&G->end_inv)) {
		G->end_nr = nr;
		G->end_value = value;
		G->end_ip = r ? r->rip : 0;
		G->end_slot = me.slot;
		if (r) {
			G->end_arg[0] = r->rdi;
			G->end_arg[1] = r->rsi;
			G->end_arg[2] = r->rdx;
		}
		sf_say_end(end);
	}
	store(&G->slot[me.slot].phase, SF_P_EXITING);
	__atomic_fetch_add(&G->launcher_bell, 1, __ATOMIC_SEQ_CST);
	sys3(NR_futex, &G->launcher_bell, FUTEX_WAKE, 1);
	if (end == SF_E_EXITED && me.slot == 0)
		for (;;)
			sys1(NR_exit_group, value);
	/* Nothing more happens here: the launcher reports and ends what is left. */
	for (;;)
		sys0(NR_pause);
}

static const struct sf_sub *find_calls(const struct sf_sub *t, u32 n, u32 command)
{
	for (u32 i = 0; i < n; i++)
		if (t[i].command == command)
			return &t[i];
	return NULL;
}
#define FIND(t, c) find_calls(t, sizeof(t) / sizeof *(t), c)

/* Socket options whose values are more than bytes. */
static const struct sf_call *option(u32 nr, const u64 a[6], struct sf_call *own)
{
	int set = nr == NR_setsockopt;
	for (u32 i = 0; i < sizeof sockopts / sizeof *sockopts; i++) {
		const struct sockopt *o = &sockopts[i];
		if (o->level != (u32)a[1] || o->name != (u32)a[2] || o->class[set] != SF_DENY)
			continue;
		own->class = SF_DENY;
		own->err = o->err[set];
		return own;
	}
	return &sf_calls[nr];
}

/* What each operation reads and stores (futex(2)): words that the kernel stores are stored in
 * every replica, and limits are compared. Nobody outside can wait for a private word, and the one
 * thread does not while it wakes: such a call changes nothing. */
static const struct sf_call *futex(const u64 a[6], struct sf_call *own)
{
	static const struct sf_arg in_word = IN1_(4), word = SF_ARG_WHEN(INOUT, ONE_, ONE_, 4, ALWAYS), limit = IN1_(16);
	*own = sf_calls[202];
	switch (a[1] & FUTEX_CMD) {
	case FUTEX_WAKE:
	case FUTEX_WAKE_BITSET:
		if (a[1] & FUTEX_PRIVATE)
			own->class = SF_QUERY;
		return own;
	case FUTEX_WAIT:
	case FUTEX_WAIT_BITSET:
		if (!sf_domain_word(a[0])) /* else others may store to it while this one waits */
			own->arg[0] = in_word;
		own->arg[3] = limit;
		return own;
	case FUTEX_LOCK_PI:
	case FUTEX_LOCK_PI2:
		own->arg[3] = limit;
		/* fall through */
	case FUTEX_UNLOCK_PI:
	case FUTEX_TRYLOCK_PI: own->arg[0] = word; return own;
	case FUTEX_WAIT_REQUEUE_PI:
		own->arg[3] = limit;
		/* fall through */
	case FUTEX_WAKE_OP:
	case FUTEX_CMP_REQUEUE_PI: own->arg[0] = own->arg[4] = word; return own;
	}
	return &sf_calls[202];
}

/* Answered by thread.c in every replica. */
static const struct sf_call *about_threads(const struct sf_call *c, struct sf_call *own, u8 class)
{
	if (c != own)
		*own = *c;
	own->class = class;
	own->handler = SF_H_thread;
	return own;
}

static const struct sf_call *denied(const struct sf_call *c, struct sf_call *own, int err)
{
	*own = *c;
	own->class = SF_DENY;
	own->err = (int16_t)err;
	return own;
}

static int is_own_thread(u64 tid)
{
	return (u32)tid == G->leader_pid || (app.threads && sf_thread_names(tid));
}

/* The row in force for this call: a sub-table may replace class, errno and pointer. */
static const struct sf_call *row(u32 nr, const u64 a[6], struct sf_call *own)
{
	const struct sf_call *c = &sf_calls[nr];
	const struct sf_sub *s;
	u32 at;
	if (!c->name) {
		own->class = SF_DENY; /* a gap in the numbers: as the kernel answers */
		own->err = 38;
		return own;
	}
	switch (c->handler) {
	case SF_H_ioctl:
		s = FIND(ioctls, (u32)a[1]);
		at = 2;
		break;
	case SF_H_fcntl:
		s = FIND(fcntls, (u32)a[1]);
		at = 2;
		break;
	case SF_H_prctl:
		s = FIND(prctls, (u32)a[0]);
		at = 1;
		break;
	case SF_H_arch_prctl:
		s = FIND(arch_prctls, (u32)a[0]);
		at = 1;
		break;
	case SF_H_ipcctl:
		if (nr == NR_semctl)
			s = FIND(semctls, (u32)a[2] & 0xff), at = 3;
		else if (nr == NR_shmctl)
			s = FIND(shmctls, (u32)a[1]), at = 2;
		else
			s = FIND(msgctls, (u32)a[1] & 0xff), at = 2;
		break;
	case SF_H_sockopt: return option(nr, a, own);
	case SF_H_futex:
		c = futex(a, own);
		/* Other processes may wait for a word that they share: the kernel's. */
		return app.threads && ((a[1] & FUTEX_PRIVATE) || !sf_domain_word(a[0])) ? about_threads(c, own, SF_QUERY) : c;
	case SF_H_fork: return sf_is_thread(nr, a) ? about_threads(c, own, SF_ALL) : sf_spawn_row(c, own, nr, a);
	case SF_H_pidfd: return G->options & SF_O_PAIR ? denied(c, own, ENOSYS) : c;
	case SF_H_robust: return !(u32)a[0] || is_own_thread(a[0]) ? about_threads(c, own, SF_QUERY) : c;
	case SF_H_exit: return app.threads > 1 ? about_threads(c, own, SF_ALL) : c;
	case SF_H_tkill:
	case SF_H_tgkill:
	case SF_H_sigqueue: return sf_thread_takes(nr, c, a) ? about_threads(c, own, c->class) : c;
	case SF_H_sigtimedwait: return sf_thread_is_sent(a) ? about_threads(c, own, SF_ALL) : c;
	default: return c;
	}
	*own = *c;
	if (!s) {
		/* A driver does anything with a command that only it knows; other tables have all that the kernel knows. */
		own->class = SF_REFUSE;
		return c->handler == SF_H_ioctl ? own : denied(c, own, EINVAL);
	}
	own->class = s->class;
	own->err = s->err;
	own->arg[at] = s->arg;
	return c->handler == SF_H_prctl && unlikely(sf_thread_answers(a)) ? about_threads(own, own, SF_ALL) : own;
}

/* Calls that the kernel counts in wchar of /proc/PID/io: from the count the launcher knows
 * whether a write that was in flight when the leader was killed has happened. */
static int counted(u32 nr)
{
	switch (nr) {
	case NR_write:
	case NR_pwrite64:
	case NR_writev:
	case NR_pwritev:
	case NR_pwritev2:
	case NR_sendfile:
	case NR_copy_file_range: return 1;
	}
	return 0;
}

#define MSG_PEEK 2u
#define MSG_CTRUNC 8u
#define MSG_TRUNC 0x20u
#define MSG_WAITALL 0x100u

enum { MOVES_SOME, MOVES_ALL, MOVES_VECTOR };

static int waits_for_all(u64 flags)
{
	return (flags & (MSG_WAITALL | MSG_PEEK | MSG_TRUNC)) == MSG_WAITALL;
}

/* Calls that move all their bytes unless something comes up, from a place to which `rest_of_call` leads on, or from a
 * vector, of which the leader's call leaves out what is done. */
static int moves(u32 nr, const u64 a[6])
{
	switch (nr) {
	case NR_write:
	case NR_pwrite64:
	case NR_sendto: return MOVES_ALL;
	case NR_recvfrom: return waits_for_all(a[3]) ? MOVES_ALL : MOVES_SOME;
	case NR_recvmsg: return waits_for_all(a[2]) ? MOVES_VECTOR : MOVES_SOME;
	case NR_writev:
	case NR_sendmsg:
	case NR_pwritev:
	case NR_pwritev2: return MOVES_VECTOR;
	}
	return MOVES_SOME;
}

/* One datagram is all that comes by one call (recv(2), MSG_WAITALL). */
static int is_stream_calls(u64 fd)
{
	u32 type = 0, bytes = sizeof type;
	return sf_sys(NR_getsockopt, fd, 1 /* SOL_SOCKET */, 3 /* SO_TYPE */, (u64)&type, (u64)&bytes, 0) == 0 &&
	       type == 1 /* SOCK_STREAM */;
}

static struct msghdr {
	u64 name;
	u32 namelen, pad;
	u64 iov, iovlen, control, controllen;
	u32 flags, pad2;
} rest_message;
static struct iovec {
	u64 base, len;
} rest_vector[1024]; /* UIO_MAXIOV */

/* Of a call with a vector: copies what is left of it, and its length. */
u64 sf_rest_of_vector(u32 nr, const u64 a[6], u64 *n)
{
	u64 at = a[1], done = app.done_of_call, left = 0, to = 0;
	*n = a[2];
	if ((nr == NR_sendmsg || nr == NR_recvmsg) && sf_user_bytes(&rest_message, a[1], sizeof rest_message) == 0)
		at = rest_message.iov, *n = rest_message.iovlen;
	if (*n > sizeof rest_vector / sizeof *rest_vector || sf_user_bytes(rest_vector, at, *n * sizeof *rest_vector) < 0)
		return 0;
	for (u64 i = 0; i < *n; i++) {
		struct iovec v = rest_vector[i];
		u64 skip = v.len < done ? v.len : done;
		done -= skip;
		if (v.len == skip)
			continue;
		rest_vector[to++] = (struct iovec){ v.base + skip, v.len - skip };
		left += v.len - skip;
	}
	*n = to;
	return left;
}

/* A message whose vector is too long is received into a copy of it that is shorter, and then no other
 * by the same call: no datagram is as long, and the bytes of a stream wait for the next call. */
static struct {
	u64 at;
	struct msghdr h;
	u32 len, pad;
} cut;

/* The kernel ends a message where it has more to tell of it than bytes. */
static int ends_by_itself(void)
{
	return cut.at || (rest_message.control && rest_message.controllen) || (rest_message.flags & MSG_CTRUNC);
}

/* Has the launcher's word ended the call before all was moved? */
static int is_cut_short(u32 nr, const u64 a[6], s64 r)
{
	u64 n;
	int what = moves(nr, a);
	if (r <= 0 || what == MOVES_SOME || (u64)r >= (what == MOVES_ALL ? a[2] : sf_rest_of_vector(nr, a, &n)))
		return 0;
	if (nr == NR_recvmsg && (sf_alone() /* who has digested no header */ || ends_by_itself()))
		return 0;
	return (nr != NR_recvmsg && nr != NR_recvfrom) || is_stream_calls(a[0]);
}

/* What goes with the bytes of a message has gone with the first of them. */
static void leave_out_done(u32 nr, u64 call[7])
{
	u64 n;
	if (moves(nr, call + 1) != MOVES_VECTOR || !sf_rest_of_vector(nr, call + 1, &n))
		return;
	if (nr != NR_sendmsg && nr != NR_recvmsg) {
		call[2] = (u64)rest_vector;
		call[3] = n;
		if (nr != NR_writev && call[4] != -1ull /* where the file is */)
			call[4] += app.done_of_call;
		return;
	}
	rest_message.iov = (u64)rest_vector;
	rest_message.iovlen = n;
	if (nr == NR_sendmsg)
		rest_message.control = rest_message.controllen = 0;
	call[2] = (u64)&rest_message;
}

/* What the kernel has told of a message that was received into a copy of its header (recvmsg(2)). */
static void tell_of_message(u64 at, const struct msghdr *h)
{
	sf_user_put(at + 8, &h->namelen, 4);
	sf_user_put(at + 40, &h->controllen, 8);
	sf_user_put(at + 48, &h->flags, 4);
}

/* A repair is nothing that the program could know of: what a call had left to move is another event, behind it. */
static void rest_of_call(struct sf_regs *r, u32 nr, u64 moved)
{
	const u64 a[6] = { r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9 };
	app.done_of_call += moved;
	if (moves(nr, a) == MOVES_VECTOR) {
		if (nr == NR_recvmsg && (s64)moved > 0)
			sf_message_again(a[1]);
		return;
	}
	if (nr == NR_sendfile) { /* the kernel has moved the offset on */
		r->r10 -= moved;
		return;
	}
	r->rsi += moved;
	r->rdx -= moved;
	if (nr == NR_pwrite64)
		r->r10 += moved;
}

/* All of it is done. What the whole call has come to. */
static s64 whole_call(struct sf_regs *r, u32 nr, s64 ret)
{
	const u64 before = app.done_of_call;
	rest_of_call(r, nr, 0 - before);
	if (nr == NR_recvmsg && ret <= 0) /* nothing more was told than of the first bytes */
		tell_of_message(r->rsi, &(struct msghdr){ .namelen = 0 });
	return (s64)before + (ret > 0 ? ret : 0);
}

/* A vector of which no more than `room` bytes are to be moved: 1, `*at` and `*n` name a shorter one. */
int sf_cut_vector(u64 *at, u64 *n, u64 room)
{
	static struct iovec v[1024];
	if (*n > sizeof v / sizeof *v || sf_user_bytes(v, *at, *n * sizeof *v) < 0)
		return 0;
	for (u64 i = 0; i < *n; i++) {
		if ((s64)v[i].len < 0)
			return 0; /* EINVAL, says the kernel */
		if (v[i].len > room) {
			v[i].len = room;
			*at = (u64)v;
			*n = i + 1;
			return 1;
		}
		room -= v[i].len;
	}
	return 0;
}

/* Messages from the first one on that fit together; at least one. */
static u64 fitting(u64 at, u64 n)
{
	u64 room = SF_READ_MAX;
	for (u64 i = 0; i < n; i++) {
		u64 h[7], v[2];
		if (sf_user_bytes(h, at + 64 * i, sizeof h) < 0)
			return n; /* EFAULT, says the kernel */
		for (u64 k = 0; k < h[3] && k < 1024; k++) {
			if (sf_user_bytes(v, h[2] + 16 * k, sizeof v) < 0)
				return n;
			if (v[1] > room)
				return i ? i : 1;
			room -= v[1];
		}
	}
	return n;
}

static void cut_message(u32 nr, u64 call[7])
{
	cut.at = 0;
	if (nr == NR_recvmmsg)
		call[3] = fitting(call[2], (u32)call[3]);
	if (sf_user_bytes(&cut.h, call[2], sizeof cut.h) < 0 || !sf_cut_vector(&cut.h.iov, &cut.h.iovlen, SF_READ_MAX))
		return;
	cut.at = call[2];
	call[2] = (u64)&cut.h;
	if (nr == NR_recvmmsg)
		call[3] = 1;
}

static void uncut_message(u32 nr, s64 r)
{
	u64 at = cut.at;
	cut.at = 0;
	if (r < 0)
		return;
	tell_of_message(at, &cut.h);
	if (nr == NR_recvmmsg && r > 0)
		sf_user_put(at + 56, &cut.len, 4);
}

/* The leader's turn, or everybody's: make the call, again if nothing but our own nudge
 * interrupted it. SF_NOT_MADE or -EINTR from the leader: see sf_interrupted. */
/* What one call brings has to fit into the log: a read of more comes back short, as the kernel's own do beyond 2 GiB
 * (read(2), NOTES). */
static void bring_less(u32 nr, u64 call[7])
{
	if ((nr == NR_read || nr == NR_pread64 || nr == NR_recvfrom) && call[3] > SF_READ_MAX)
		call[3] = SF_READ_MAX;
	if (nr == NR_getrandom /* which may end early as well */ && call[2] > SF_READ_MAX)
		call[2] = SF_READ_MAX;
	if (unlikely(nr == NR_readv || nr == NR_preadv || nr == NR_preadv2))
		sf_cut_vector(&call[2], &call[3], SF_READ_MAX); /* what the kernel brings has to fit into the log */
	if (unlikely(nr == NR_recvmsg || nr == NR_recvmmsg))
		cut_message(nr, call);
}

/* One system call on its way. */
struct making {
	struct sf_regs *r;
	u64 trapped; /* return address of the call if it came through the backstop, or 0 */
	const struct sf_call *c;
	struct sf_call own;
	struct sf_siginfo info;
	u64 a[6];
	u32 nr;
	int act;
};

static void arguments(const struct sf_regs *r, u64 a[6])
{
	a[0] = r->rdi, a[1] = r->rsi, a[2] = r->rdx, a[3] = r->r10, a[4] = r->r8, a[5] = r->r9;
}

/* What the call names, read again: as claim_call() did, and without what that may begin. */
static int is_still_meant(const struct sf_event *e, const struct making *k)
{
	struct sf_event now = *e;
	u64 a[6];
	arguments(k->r, a);
	for (int i = 0; i < 6; i++)
		now.args[i] = k->c->arg[i].kind == SF_A_NONE ? 0 : a[i];
	now.nr = (u32)k->r->rax;
	now.bytes = (struct sf_hash){ 0, 0 };
	sf_digest_args(&now, k->c, a);
	return sf_claim_stands(e, &now, k->r);
}

/* The leader's, while it acts. */
static const struct making *acting;

/* A call that was interrupted may have waited for long. One that stores nothing still finds what it was agreed on. */
static COLD int may_be_made_again(const struct sf_event *e)
{
	return !acting || sf_alone() || !e->lockstep || e->outs || is_still_meant(e, acting);
}

/* The call itself, until it has been made or a signal that is for the program comes first. */
static s64 make_calls(struct sf_event *e, u64 call[7], int limited)
{
	s64 r;
	for (;;) {
		tls.abort = 0;
		me.rewound = 0;
		me.interruptible = 1;
		barrier();
		/* Who raises an alarm nudges the leader after it: seen here, or interrupted below. */
		if (me.slot == 0 && unlikely(sf_signal_pending() | (load(&G->alarm) != SF_A_QUIET) | sf_take_is_late()))
			tls.abort = 1;
		r = sf_call_agreed(e, call);
		me.interruptible = 0;
		tls.abort = 0;
		if (likely(r != -EINTR && r != SF_NOT_MADE))
			return r;
		if (me.slot == 0 && (sf_signal_pending() || load(&G->alarm) || sf_take_is_late() || !may_be_made_again(e)))
			return r;
		if (limited)
			sf_limit_again(call);
	}
}

/* Signals that a call has taken, or that a handler of the agent's holds. */
static void brought_signals(u32 nr, const u64 a[6], s64 r)
{
	if (unlikely(nr == NR_read && r > 0 && r % SF_READ_INFO == 0) && me.slot == 0)
		sf_signals_read((u32)a[0], a[1], (u64)r);
	if (unlikely(nr == NR_rt_sigtimedwait) && r > 0)
		sf_signal_taken(a[1]);
	if (unlikely(me.pending_n || app.threads) && nr == NR_rt_sigpending && r == 0)
		sf_signals_held(a[0]);
}

/* Leader: whether the call is made so that it does not wait: other threads could go on, or it has the turn of a pair's processes. */
INLINE int is_tried(const struct sf_event *e, u32 nr, u32 waits)
{
	if (unlikely(app.threads) && nr == NR_futex)
		return me.slot == 0;
	if (unlikely(app.threads > 1 && waits) && sf_threads_may_wake())
		return 1;
	return unlikely(waits) && (sf_ipc_tries(e->seq, nr) || (app.threads && sf_fifo_waits()));
}

/* FUTEX_WAIT for a lock whose owner may be killed by others (owner.c). */
static s64 wait_for_owner(struct sf_event *e, const u64 a[6], u64 call[7], int limited)
{
	for (;;) {
		u64 slice[7];
		s64 limit[2];
		memcpy(slice, call, sizeof slice);
		if (!sf_owner_slice(a, slice, call[4] ? sf_futex_left(call[2], call[4]) : ~0ull, limit))
			return make_calls(e, call, limited);
		const s64 r = make_calls(e, slice, 0);
		if (r != -ETIMEDOUT)
			return r;
		me.made = 0; /* nothing has happened */
		store(&G->slot[0].made, 0);
		if (sf_owner_died(a))
			return -EOWNERDEAD;
		if (limited)
			sf_limit_again(call);
	}
}

/* A file may be opened twice: first as one that does not exist (segment.c). So may a segment of System V. */
static s64 make_or_open(struct sf_event *e, u32 nr, u64 call[7], int limited)
{
	const int opens = (nr == NR_open || nr == NR_openat || nr == NR_shmget) && me.slot == 0 && (u32)call[0] == nr;
	if (unlikely(opens))
		sf_segment_opens(nr, call);
	s64 r = make_calls(e, call, limited);
	if (unlikely(opens) && sf_segment_opens_again(nr, call, r))
		r = make_calls(e, call, limited);
	return r;
}

/* Whether it is a signal that another process may be made again to hear. */
INLINE int sends(u32 nr)
{
	switch (nr) {
	case NR_kill:
	case NR_tkill:
	case NR_tgkill:
	case NR_rt_sigqueueinfo:
	case NR_rt_tgsigqueueinfo: return me.slot == 0 && !(G->options & SF_O_PAIR) && !sf_alone();
	}
	return 0;
}

/* What has been done, and what the kernel is not to do. */
INLINE void leave_out(u32 nr, u64 call[7])
{
	if (me.slot == 0 && !sf_alone())
		bring_less(nr, call);
	if (unlikely(app.done_of_call) && me.slot == 0)
		leave_out_done(nr, call);
	if (nr == NR_close_range)
		call[3] &= ~2ull; /* CLOSE_RANGE_UNSHARE: nobody but the replicas shares the table */
}

/* Whether the leader may have to answer a call itself, or to name what it is about by other numbers. */
INLINE int is_other_to_the_kernel(u32 nr)
{
	return me.slot == 0 &&
	       (me.reborn || me.strays || load(&G->renumbered) || nr == NR_prctl || nr == NR_getppid || sf_ipc_kind(nr) >= 0);
}

static s64 execute(struct sf_event *e, u32 nr, const u64 a[6])
{
	u64 call[7] = { nr, a[0], a[1], a[2], a[3], a[4], a[5] };
	s64 r;
	leave_out(nr, call);
	u32 waits = me.slot == 0 ? sf_waits[nr & 511] : 0;
	int limited = waits & SF_WAITS_LIMIT;
	if (unlikely(app.threads) && me.slot == 0)
		sf_thread_translate(nr, call);
	if (unlikely(is_other_to_the_kernel(nr))) {
		if (sf_kernel_answers(nr, a, &r))
			return r;
		sf_kernel_translate(nr, call);
	}
	if (unlikely(app.map_files) && app.domain && nr == NR_futex && me.slot == 0)
		sf_shared_translate(call);
	enum sf_try try = is_tried(e, nr, waits) ? sf_try(nr, call) : SF_TRY_GO;
	if (unlikely(try == SF_TRY_PARK)) {
		cut.at = 0;
		return SF_WOULD_WAIT;
	}
	if (unlikely(try == SF_TRY_ANSWERED))
		return sf_try_answer();
	if (unlikely(try == SF_TRY_CHECK))
		limited = 0;
	if (unlikely(limited))
		sf_limit_begin(e->seq, nr, call); /* asks whether it has begun before */
	if (waits && likely(try == SF_TRY_GO))
		store(&G->begun, e->seq);
	if (unlikely(SF_ROOM_CALL(nr)) && me.slot == 0)
		sf_room_before(call);
	int counts = me.slot == 0 && counted((u32)call[0]) && me.made != e->seq; /* a write may be made as a send (try.c) */
	if (counts) {
		G->wrote_before = me.wrote;
		store(&G->wrote_seq, e->seq);
	}
	r = nr == NR_futex && me.slot == 0 ? wait_for_owner(e, a, call, limited) : make_or_open(e, nr, call, limited);
	if (unlikely(app.done_of_call) && nr == NR_recvmsg && me.slot == 0 && r > 0)
		tell_of_message(a[1], &rest_message);
	if (unlikely(try == SF_TRY_CHECK) && (r = sf_tried(nr, a, r)) == SF_WOULD_WAIT) {
		cut.at = 0;
		return r;
	}
	me.cut_short = me.slot == 0 && unlikely(load(&G->alarm) != SF_A_QUIET) && is_cut_short(nr, a, r);
	me.cut_short |= unlikely(try == SF_TRY_CHECK) && sf_try_cut();
	if (unlikely(limited) && r != SF_NOT_MADE && (r != -EINTR || sf_signal_pending()))
		r = sf_limit_end(r);
	if (counts && r > 0)
		me.wrote += (u64)r;
	if (unlikely(cut.at))
		uncut_message(nr, r);
	brought_signals(nr, a, r);
	if (unlikely(SF_ROOM_CALL(nr)) && me.slot == 0)
		sf_room_after(nr, a, r);
	if (nr == NR_futex && me.slot == 0)
		return sf_parked_hear(a, r);
	if (unlikely(sends(nr)))
		return sf_number_sent(nr, a, call[1], r);
	return sf_kernel_result(nr, a, r);
}

/* On every replica, after agreement and in log order: state that the agent keeps. */
static s64 mirror(u32 handler, const u64 a[6], int *handled)
{
	*handled = 1;
	switch (handler) {
	case SF_H_sigaction: return sf_sigaction(a);
	case SF_H_sigprocmask: return sf_sigprocmask(a);
	case SF_H_sigaltstack: return sf_sigaltstack(a);
	}
	*handled = 0;
	return 0;
}

enum { ACT_LEADER, ACT_ALL, ACT_MIRROR, ACT_MEMORY, ACT_NOTHING, ACT_RETURN, ACT_THREAD };

static int how(const struct sf_call *c)
{
	switch (c->handler) {
	case SF_H_sigaction:
	case SF_H_sigprocmask:
	case SF_H_sigaltstack: return ACT_MIRROR;
	case SF_H_mmap:
	case SF_H_munmap:
	case SF_H_mremap:
	case SF_H_mprotect:
	case SF_H_brk:
	case SF_H_madvise:
	case SF_H_msync: return ACT_MEMORY;
	case SF_H_prlimit: return ACT_LEADER;
	case SF_H_sigreturn: return ACT_RETURN;
	case SF_H_thread: return ACT_THREAD;
	}
	return c->class == SF_DENY ? ACT_NOTHING : c->class == SF_ALL && !app.spawn.active ? ACT_ALL : ACT_LEADER;
}

/* A call site that could not be patched beforehand has proven itself by trapping: from the
 * second time on it is worth a jump. The plan travels behind the result's bytes. */
static void patch_site(struct sf_result *r, u64 behind)
{
	static struct {
		u64 at;
		u32 times;
	} seen[64];
	u32 slot = (u32)(behind / 2 % 64);
	if (seen[slot].at != behind)
		seen[slot].at = behind, seen[slot].times = 0;
	if (++seen[slot].times != 2)
		return;
	while (r->out_len & 7)
		sf_result_bytes(r, "", 1);
	s64 n = sf_rpc(SF_RPC_SITE, behind - 2, 0, 0, 0, r->out_off + r->out_len);
	if (n <= 0)
		return;
	r->aux = r->out_off + r->out_len;
	r->out_len += (u32)n;
	r->flags |= SF_R_PATCH;
	sf_apply_patch(PAYLOAD + r->aux, (u32)n);
}

/* What procfs calls the file behind a descriptor; not terminated. */
s64 sf_fd_name(u64 fd, char *to, u32 room)
{
	char link[32] = "/proc/self/fd/";
	sf_decimal(link + 14, (u32)fd);
	return sys3(NR_readlink, link, to, room);
}

static int is_own_group(s32 pid)
{
	return pid == 0 || (pid < -1 && -pid == (s32)sf_kernel_result(NR_getpgrp, NULL, sys0(NR_getpgrp)));
}

/* The kill(2) family with SIGKILL, at anybody. */
static int kills(const struct sf_call *c, u32 nr, const u64 a[6])
{
	switch (c->handler) {
	case SF_H_kill:
	case SF_H_tkill: return (s32)a[1] == 9;
	case SF_H_tgkill: return (s32)a[2] == 9;
	case SF_H_sigqueue: return (s32)a[nr == NR_rt_sigqueueinfo ? 1 : 2] == 9;
	case SF_H_pidfd: return nr == NR_pidfd_send_signal && (s32)a[1] == 9;
	}
	return 0;
}

/* ... at the program itself. */
static int kills_itself(const struct sf_call *c, u32 nr, const u64 a[6])
{
	const s32 own = (s32)G->leader_pid;
	switch (c->handler) {
	case SF_H_kill: return (s32)a[1] == 9 && (is_own_thread(a[0]) || is_own_group((s32)a[0]));
	case SF_H_tkill: return (s32)a[1] == 9 && is_own_thread(a[0]);
	case SF_H_tgkill: return (s32)a[2] == 9 && (s32)a[0] == own && is_own_thread(a[1]);
	case SF_H_pidfd: return kills(c, nr, a) && sf_pidfd_names(a[0]) == sys0(NR_getpid);
	case SF_H_sigqueue: return (s32)a[0] == own && (nr == NR_rt_sigqueueinfo ? (s32)a[1] == 9 : is_own_thread(a[1]) && (s32)a[2] == 9);
	}
	return 0;
}

/* A stop signal at the program itself, which takes it: others go on meanwhile. */
int sf_stops_itself(const struct sf_call *c, u32 nr, const u64 a[6])
{
	u64 s;
	int own = (u32)a[0] == G->leader_pid;
	switch (c->handler) {
	case SF_H_kill:
		own |= (s32)a[0] == 0;
		s = a[1];
		break;
	case SF_H_tkill:
		own = is_own_thread(a[0]);
		s = a[1];
		break;
	case SF_H_tgkill: s = a[2]; break;
	case SF_H_sigqueue: s = a[nr == NR_rt_sigqueueinfo ? 1 : 2]; break;
	default: return 0;
	}
	return own && sf_signal_stops((u32)s);
}

/* /proc/.../mem opened for writing, by whatever path: the stores would reach the leader's memory
 * alone. The leader looks; whoever else took this way comes to no end (sf_follow_end). */
static int opens_memory(u32 nr, const u64 a[6])
{
	int named = nr == NR_open || nr == NR_creat; /* no directory */
	u64 flags = nr == NR_open ? a[1] : nr == NR_creat ? 1 : a[2];
	static char name[4096], to[64];
	if (me.slot != 0 || (nr == NR_openat2 && sf_user_bytes(&flags, a[2], 8) < 0))
		return 0;
	s64 n = (flags & 3) ? sf_user_string(name, named ? a[0] : a[1], sizeof name) : -1;
	if (n < 3 || memcmp(name + n - 3, "mem", 4) != 0 || (n > 3 && name[n - 4] != '/'))
		return 0;
	s64 fd = sys3(NR_openat, named ? (u64)-100 /* AT_FDCWD */ : a[0], name, 012000000 /* O_PATH|O_CLOEXEC */);
	if (fd < 0)
		return 0;
	n = sf_fd_name((u64)fd, to, sizeof to);
	sys1(NR_close, fd);
	return n > 6 && memcmp(to, "/proc/", 6) == 0;
}

/* A re-run repeats a file's mapping when its descriptor may be closed or mean another file:
 * the name goes into the log. Length, then the bytes with their NUL, padded to 8. */
static void note_path(struct sf_result *r, s32 fd)
{
	char path[4096];
	s64 len = sf_fd_name((u64)fd, path, sizeof path - 8);
	u64 bytes = len > 0 ? ((u64)len + 8) & ~7ull : 0;
	if (len > 0)
		memset(path + len, 0, bytes - (u64)len);
	sf_result_bytes(r, &bytes, 8);
	sf_result_bytes(r, path, (u32)bytes);
}

/* The payload of a mapping: the file if it is mapped shared, its name, the plan. */
static u32 file_bytes(const struct sf_result *r)
{
	return r->flags & SF_R_SHARED ? sizeof(struct sf_shared_file) : 0;
}

static void apply_plan(const struct sf_result *r)
{
	u32 at = r->out_off + file_bytes(r);
	if (G->options & SF_O_RETAIN)
		at += 8 + (u32) * (const u64 *)(PAYLOAD + at);
	sf_apply_patch(PAYLOAD + at, r->out_off + r->out_len - at);
}

static struct {
	const u8 *path;
	u64 a[6];
	s64 ret;
} again;

/* With a descriptor table of its own: the group's would lose the program's locks on the file. */
static void map_by_name(void)
{
	s64 fd = sys3(NR_open, again.path, 02000000 /* O_CLOEXEC */, 0);
	if (fd < 0)
		return;
	again.a[4] = (u64)fd;
	again.ret = sf_memory_call(9, again.a, again.ret);
}

/* What the leader's descriptor is called in procfs. A leader that was made again is another process than the program knows. */
void sf_leaders_file(u64 fd, char to[40])
{
	const s32 process = me.slot == 0 ? (s32)sys0(NR_getpid) : load(&G->slot[0].pid);
	memcpy(to, "/proc/", 6);
	u64 n = 6 + sf_decimal(to + 6, (u64)(process > 0 ? process : (s32)G->leader_pid));
	memcpy(to + n, "/fd/", 4);
	sf_decimal(to + n + 4, (u32)fd);
}

/* A follower that has a table of its own, with nothing in it. The leader keeps the file open meanwhile (SF_R_BARRIER). */
static s64 map_of_the_leader(const u64 a[6], s64 forced)
{
	char path[40];
	u64 own[6] = { a[0], a[1], a[2], a[3], a[4], a[5] };
	sf_leaders_file(a[4], path);
	s64 fd = sys3(NR_open, path, 02000000 /* O_CLOEXEC */, 0);
	if (fd < 0)
		return fd;
	own[4] = (u64)fd;
	s64 r = sf_memory_call(9, own, forced);
	sys1(NR_close, fd);
	return r;
}

/* Leader: followers are about to open what it maps. A process that has given up rights does not own its files in procfs
 * (prctl(2), PR_SET_DUMPABLE), so it does until they have; and it has to be one that may be opened once more. */
static void lend(u64 fd, struct sf_regs *r)
{
	enum { AT_FDCWD = -100, R_OK = 4, AT_EACCESS = 0x200 };
	char path[40];
	me.lends = 1 + (u32)sf_readable(1);
	sf_leaders_file(fd, path);
	if (me.replicas == 1 || sys4(NR_faccessat2, AT_FDCWD, path, R_OK, AT_EACCESS) == 0)
		return;
	if (sys3(NR_fcntl, (u32)fd, 1 /* F_GETFD */, 0) >= 0)
		sf_end(SF_E_REFUSED, SF_NR_MAP_CLOSED, 0, r);
}

/* Leader: they have. */
void sf_mapped_by_all(void)
{
	if (unlikely(me.lends))
		sf_readable((s64)me.lends - 1);
	me.lends = 0;
}

static s64 map_again(const struct sf_result *r, u32 nr, const u64 a[6])
{
	s64 forced = nr == NR_mmap || nr == NR_mremap || nr == NR_shmat ? r->ret : 0;
	const u8 *at = PAYLOAD + r->out_off;
	u32 shared = file_bytes(r);
	sf_shared_given(shared ? (const void *)at : NULL);
	if (me.tables_apart && me.role == SF_FOLLOWER && nr == NR_mmap && !(a[3] & 0x20))
		return map_of_the_leader(a, forced);
	if (me.role != SF_RERUN || nr != NR_mmap || (a[3] & 0x20))
		return sf_memory_call(nr, a, forced);
	again.path = at + shared + 8;
	again.ret = forced;
	for (int i = 0; i < 6; i++)
		again.a[i] = a[i];
	again.a[4] = -1ull;
	if (!*(const u64 *)(at + shared) || sf_with_own_table(map_by_name) < 0 || again.a[4] == -1ull)
		return -1; /* it has no vote: the next claim is spoilt */
	return again.ret;
}

/* The leader waits for a child. What nobody is to hear of is no reason to return. */
static s64 wait_for_child(struct sf_event *e, u32 nr, const u64 a[6])
{
	u64 own[6], look[6];
	s64 r;
	do {
		sf_ward_asks(nr, a, own);
		r = 1;
		if (sf_ward_peeks(nr, own, look)) {
			r = execute(e, NR_waitid, look);
			r = r ? r : sf_ward_found(nr, own);
		}
		if (r == 1)
			r = execute(e, nr, own);
		r = r == SF_NOT_MADE ? r : sf_ward_answers(nr, a, r);
	} while (r == SF_NOT_MADE && !sf_signal_pending() && !load(&G->alarm));
	return r;
}

/* A file that was mapped: what followers need to map it as well, and new code, patched in every replica before anyone can
 * run it. */
static void maps_file(struct sf_result *r, const u64 a[6], s64 ret)
{
	if (G->options & SF_O_RETAIN)
		note_path(r, (s32)a[4]);
	r->aux = r->out_off + r->out_len;
	r->flags |= SF_R_BARRIER; /* followers map by the same descriptor: it must stay open */
	if (a[2] & 4) {
		s64 n = sf_rpc(SF_RPC_PATCH, (u64)ret, a[1], (u64)(s64)(s32)a[4], a[5], r->aux);
		if (n > 0) {
			r->out_len += (u32)n;
			r->flags |= SF_R_PATCH;
			sf_apply_patch(PAYLOAD + r->aux, (u32)n);
		}
		sf_privatise((u64)ret, ((u64)ret + a[1] + 4095) & ~4095ull, a[2], 1);
	}
}

#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define ANY_FIXED 0x100010ull /* MAP_FIXED, MAP_FIXED_NOREPLACE */

/* Nothing can be received into such a mapping (sockopt.def, TCP_ZEROCOPY_RECEIVE), and a follower with a table of its own could not
 * open what is mapped: as a kernel that maps no sockets. What is wrong with the other arguments the kernel says. */
static s64 maps_socket(const u64 a[6])
{
	struct stat st;
	if (sys2(NR_fstat, (u32)a[4], &st) < 0 || (st.mode & S_IFMT) != S_IFSOCK)
		return 0;
	const s64 r = sf_sys(NR_mmap, 0, a[1], a[2], a[3] & ~ANY_FIXED, a[4], a[5]);
	if (sf_failed(r))
		return r;
	sys2(NR_munmap, r, a[1]);
	return -ENODEV;
}

static s64 leader_maps(struct sf_event *e, u32 nr, const u64 a[6], struct sf_result **out)
{
	sf_heap_settle(nr, a);
	const int of_a_file = nr == NR_mmap && !(a[3] & 0x20);
	const s64 refused = of_a_file ? maps_socket(a) : 0;
	if (unlikely(refused)) {
		*out = sf_result_begin(e, refused);
		return refused;
	}
	if (unlikely(me.tables_apart) && of_a_file)
		lend(a[4], me.regs);
	const s64 ret = sf_memory_call(nr, a, 0);
	struct sf_result *r = *out = sf_result_begin(e, ret);
	const struct sf_shared_file *file = sf_shared_found();
	if (unlikely(file != NULL)) {
		sf_result_bytes(r, file, sizeof *file);
		r->flags |= SF_R_SHARED;
	}
	if (of_a_file && (u64)ret > -4096ull)
		sf_mapped_by_all();
	else if (of_a_file)
		maps_file(r, a, ret);
	return ret;
}

/* A call that the leader makes for all. SF_WOULD_WAIT: not now, other threads go on. */
static s64 leader_calls(struct sf_event *e, const struct sf_call *c, u32 nr, const u64 a[6])
{
	s64 ret = 0;
	if (c->handler == SF_H_clock && sf_clock(nr, (u64 *)a, &ret))
		return ret;
	if (c->handler == SF_H_affinity && (a[0] == 0 || a[0] == G->leader_pid || (app.threads && sf_thread_names(a[0]))))
		return sf_affinity(nr, a);
	if (c->handler == SF_H_exec) {
		ret = sf_exec_begin(nr, a);
		if (ret)
			return ret;
		ret = execute(e, nr, a);
		sf_exec_failed();
		return ret;
	}
	if (unlikely(nr == NR_sendmsg || nr == NR_sendmmsg) && !(G->options & SF_O_PAIR) && !sf_alone())
		sf_segment_handed(nr, a);
	do {
		ret = 0;
		if (unlikely(G->options & SF_O_PAIR)) {
			ret = sf_pair_turn(e, nr, a);
			if (ret && ret != SF_WOULD_WAIT)
				return ret;
			if (!ret)
				sf_pair_before(nr, a);
		}
		if (unlikely(kills(c, nr, a)) && !(G->options & SF_O_PAIR) && !sf_alone())
			sf_rpc(SF_RPC_KILL, (u64)(s64)(c->handler == SF_H_pidfd ? sf_pidfd_names(a[0]) : (s32)a[0]), 0, 0, 0, 0);
		if (unlikely(sf_written_makes(e, nr, a, &ret)))
			break;
		if (likely(ret != SF_WOULD_WAIT))
			ret = unlikely(sf_ward_may_show(nr)) ? wait_for_child(e, nr, a) : execute(e, nr, a);
	} while (unlikely(G->options & SF_O_PAIR) && sf_ipc_again(e->seq, nr, &ret));
	if (unlikely(G->options & SF_O_PAIR) && sf_pair_turned(nr, a, ret))
		me.cut_short = 1;
	if (unlikely(ret == SF_WOULD_WAIT))
		return ret;
	if (unlikely(load(&G->end_inv)))
		sf_take_back_end(); /* who comes back from his own SIGKILL was refused it */
	return ret;
}

/* The thread waits, and the call is made again as an event of its own. */
static void parks(struct sf_event *e, struct sf_result **out)
{
	u64 deadline, retry;
	sf_try_until(&deadline, &retry);
	*out = sf_result_begin(e, (s64)retry);
	(*out)->aux = deadline;
	(*out)->flags |= SF_R_PARK;
}

static s64 leader_acts(struct sf_event *e, const struct sf_call *c, u32 nr, const u64 a[6], int act, struct sf_result **out)
{
	s64 ret = 0;
	int handled;
	if (unlikely(c->class == SF_QUERY) && (G->options & SF_O_PAIR) && sf_parts_are(nr, a)) {
		*out = sf_parts_plan(e, nr, a);
		sf_pair_note(e, *out, nr, a, (*out)->ret);
		return (*out)->ret;
	}
	switch (act) {
	case ACT_NOTHING: ret = -c->err; break;
	case ACT_MIRROR: ret = mirror(c->handler, a, &handled); break;
	case ACT_THREAD: {
		u64 aux = 0;
		ret = sf_thread_call(nr, a, me.regs, &aux, 1);
		*out = sf_result_begin(e, ret);
		(*out)->aux = aux;
		return ret;
	}
	case ACT_MEMORY: return leader_maps(e, nr, a, out);
	case ACT_ALL:
		if (c->handler == SF_H_mlockall)
			ret = sf_mlockall(a[0]);
		else
			ret = execute(e, nr, a);
		if (c->handler == SF_H_creds)
			sf_die_with_launcher();
		break;
	default:
		ret = leader_calls(e, c, nr, a);
		if (unlikely(ret == SF_WOULD_WAIT)) {
			parks(e, out);
			return 0;
		}
	}
	if (unlikely(c->handler == SF_H_open || nr == NR_memfd_create))
		sf_segment_opened(nr, a, ret);
	*out = sf_result_begin(e, ret);
	if (unlikely(nr == NR_shmget) && sf_segment_is_made(a))
		(*out)->flags |= SF_R_SHARED;
	if (act == ACT_LEADER || c->handler == SF_H_creds)
		sf_collect(*out, c, a, ret);
	sf_written_tell(*out);
	if (unlikely(G->options & SF_O_PAIR))
		sf_pair_note(e, *out, nr, a, ret);
	return ret;
}

static int of_rights(const struct sf_call *c, const u64 a[6])
{
	if (c->handler == SF_H_prctl) /* CAPBSET_DROP, SECUREBITS, CAP_AMBIENT */
		return a[0] == 24 || a[0] == 28 || a[0] == 47;
	return c->handler == SF_H_creds;
}

/* In a pair the secondary opens files of its own: it has to have the rights that the primary has. */
static s64 same_rights(struct sf_event *e, u32 nr, const u64 a[6])
{
	u32 head[2]; /* of capset(2): version, and whose */
	if (me.role == SF_RERUN)
		return 0;
	if (nr != NR_capset || sf_user_bytes(head, a[0], sizeof head) < 0)
		return execute(e, nr, a);
	head[1] = 0; /* the program's number is the primary's */
	return execute(e, nr, (const u64[6]){ (u64)head, a[1] });
}

enum { MADV_DONTNEED = 4, MADV_FREE = 8, MADV_REMOVE = 9, MADV_DONTNEED_LOCKED = 24 };

/* Whether a call that failed has changed what lies before a gap, or all but the gap, or what lies before memory that may
 * not be had so. What shared.c refuses the kernel has not seen: that is about MADV_REMOVE, or it answers EACCES. */
static int changed_a_part(u32 nr, const u64 a[6], s64 ret)
{
	if (nr == NR_madvise)
		return (u32)a[2] != MADV_REMOVE;
	if (nr != NR_mprotect && nr != NR_pkey_mprotect)
		return 0;
	return ret == -ENOMEM || (ret == -EACCES && (!app.maps || sf_shared_allows(nr, a) != -EACCES));
}

/* Advice about what memory is made of, and not about what it holds: the kernel may follow it in one replica and not in
 * another. */
static int may_differ(u32 nr, const u64 a[6])
{
	u32 advice = (u32)a[2];
	return nr == NR_madvise && advice != MADV_DONTNEED && advice != MADV_FREE && advice != MADV_REMOVE &&
	       advice != MADV_DONTNEED_LOCKED;
}

/* 0: this replica's own result does not fit the leader's. */
static int follower_acts(struct sf_event *e, const struct sf_call *c, u32 nr, const u64 a[6], int act, const struct sf_result *r)
{
	s64 own = r->ret;
	int handled;
	switch (act) {
	case ACT_MIRROR: own = mirror(c->handler, a, &handled); break;
	case ACT_THREAD: {
		u64 aux = r->aux;
		own = sf_thread_call(nr, a, me.regs, &aux, 0);
		break;
	}
	case ACT_MEMORY:
		sf_heap_settle(nr, a);
		if ((u64)r->ret > -4096ull && !changed_a_part(nr, a, r->ret))
			break; /* the leader's kernel refused: nobody does it */
		own = map_again(r, nr, a);
		if (may_differ(nr, a))
			own = r->ret;
		if (nr == NR_mmap && !(a[3] & 0x20) && (a[2] & 4)) {
			if (r->flags & SF_R_PATCH)
				apply_plan(r);
			sf_privatise((u64)r->ret, ((u64)r->ret + a[1] + 4095) & ~4095ull, a[2], 1);
		}
		break;
	case ACT_ALL:
		if (c->handler == SF_H_mlockall) {
			own = sf_mlockall(a[0]);
			break;
		}
		/* In a user namespace only the caller's ids exist, and rights that mean nothing
		 * outside: there the leader's result counts, and what failed is not tried. */
		if (of_rights(c, a)) {
			if (r->ret >= 0 && !(G->options & SF_O_PAIR))
				execute(e, nr, a);
			else if (r->ret >= 0 && same_rights(e, nr, a) < 0)
				return 0;
			sf_scatter(r, c, a, r->ret);
			if (c->handler == SF_H_creds)
				sf_die_with_launcher();
			break;
		}
		own = execute(e, nr, a);
		break;
	case ACT_LEADER:
		if (unlikely(G->options & SF_O_PAIR) && !sf_pair_follow(e, c, nr, a, r))
			return 0;
		if (likely(!(G->options & SF_O_PAIR)))
			sf_scatter(r, c, a, r->ret);
		if (c->handler == SF_H_prlimit && r->ret == 0 && !app.spawn.active)
			sf_follow_limit(nr, a);
		break;
	}
	if (own == -ENOMEM || own == -EAGAIN)
		me.poison |= own != r->ret ? SF_SPOILED_ALONE : 0;
	return own == r->ret;
}

NORETURN COLD static void leave_group(const struct sf_regs *r, s64 status)
{
	sf_end(SF_E_EXITED, (u32)r->rax, status, r);
}

/* What a call answers of which nobody else hears. */
INLINE s64 answered_here(const struct sf_call *c, const u64 a[6])
{
	static const u32 zero;
	if (c->handler != SF_H_getcpu)
		return 0;
	return (a[0] && sf_user_put(a[0], &zero, 4)) || (a[1] && sf_user_put(a[1], &zero, 4)) ? -EFAULT : 0;
}

/* Which of its commands a refused call was to carry out, as `command` of lib.rs reads it. Those of System V's sets and queues have a
 * flag above them (ipc(5)). */
COLD static u64 what_of(const struct sf_call *c, u32 nr, const u64 a[6])
{
	switch (c->handler) {
	case SF_H_fork: return sf_spawn_odd(nr, a);
	case SF_H_prctl:
	case SF_H_arch_prctl: return a[0];
	default: return nr == NR_semctl ? a[2] & 0xff : nr == NR_msgctl ? a[1] & 0xff : a[1];
	}
}

/* Agreed on, and not to be made: what is refused, and how the program ends by its own will. */
INLINE void ends_here(struct sf_regs *r, const struct sf_call *c, u32 nr, const u64 a[6])
{
	if (unlikely(G->options & SF_O_PAIR) && c->class != SF_DENY) {
		const u32 what = sf_pair_refuses(nr, a);
		if (what)
			sf_end(SF_E_REFUSED, what, 0, r);
	}
	if (unlikely(me.stepping))
		nr = SF_NR_STEP;
	if (unlikely(c->class == SF_REFUSE || me.stepping))
		sf_end(SF_E_REFUSED, nr, (s64)what_of(c, nr, a), r);
	if (unlikely(c->handler == SF_H_open) && opens_memory(nr, a))
		sf_end(SF_E_REFUSED, SF_NR_PROC_MEM, 0, r);
	if (unlikely(app.map_files) && nr == NR_futex && me.slot == 0 && sf_shared_waits_in_vain(a))
		sf_end(SF_E_REFUSED, SF_NR_SHARED_LOCK, 0, r);
	if (unlikely(kills_itself(c, nr, a))) {
		sf_domain_leave();
		if (me.slot == 0) {
			G->end_value = 9; /* the program's own death, not a replica's */
			sf_say_end(SF_E_SIGNALED);
		}
	}
	if (c->handler == SF_H_exit || c->handler == SF_H_exit_group) {
		if (unlikely(app.shown_n))
			sf_shown_leaves();
		sf_domain_leave();
		leave_group(r, (s64)(a[0] & 0xff));
	}
}

/* A call that has moved a part of its bytes ends with them, unless the signal is another thread's. */
static int may_go_on(void)
{
	return !app.done_of_call || sf_signal_passes();
}

/* A signal waits, and the call has not been made. It comes before the call, unless the call has been waiting already when
 * a repair, or the end of the last leader, interrupted it, or ends by a handler at any time (sf_waits_early). */
static struct sf_result *signal_first(struct sf_event *e, const struct sf_call *c, u32 nr, const u64 a[6], u32 waited)
{
	struct sf_result *res;
	s64 ret = -EINTR;
	const int passes = sf_signal_passes();
	if (!waited && !passes)
		waited = sf_waits_early(nr, a);
	int again = passes || (!app.done_of_call && (!waited || (!(waited & SF_WAITS_ENDS) && sf_signal_restarts())));
	if (again)
		sf_after_wait();
	else if (waited & SF_WAITS_LIMIT)
		ret = sf_limit_cut(e->seq, nr, a);
	res = sf_result_begin(e, ret);
	if (!again)
		sf_collect(res, c, a, ret);
	sf_signal_attach(res, again);
	return res;
}

/* The call will be made of others (pair/parts.c): no more than that has happened. */
INLINE int is_plan(u32 nr, const struct sf_result *r)
{
	return unlikely(r->flags & SF_R_PARTS) && sf_parts_call(nr);
}

/* The leader's part of an event: makes the call and publishes what came of it. NULL: again from the start. */
INLINE const struct sf_result *leader_goes(struct sf_event *e, const struct sf_call *c, u32 nr, const u64 a[6], int act, u64 trapped)
{
	struct sf_result *res;
	s64 ret;
	u32 waited = unlikely(G->begun == e->seq) ? sf_waits[nr & 511] : 0;
	if (unlikely(waited))
		sf_before_wait(c, nr, a);
	if (unlikely(sf_signal_pending()) && me.made != e->seq) {
		res = signal_first(e, c, nr, a, waited);
		ret = -EINTR;
	} else {
		sf_before_wait(c, nr, a);
		me.cut_short = 0;
		ret = leader_acts(e, c, nr, a, act, &res);
		if (unlikely(ret == SF_NOT_MADE || (ret == -EINTR && (act == ACT_LEADER || act == ACT_ALL)))) {
			enum sf_interrupt how = sf_interrupted(ret);
			if (how == SF_I_NOTHING) {
				sf_after_wait();
				sf_pair_end_turn();
				return NULL; /* the launcher woke us: heal first, then call again */
			}
			if (how == SF_I_AGAIN && sf_waits_early(nr, a))
				res = signal_first(e, c, nr, a, 0);
			else {
				res->ret = -EINTR;
				sf_signal_attach(res, how == SF_I_AGAIN && may_go_on());
			}
			ret = -EINTR;
		} else if (unlikely(sf_signal_pending() && act != ACT_THREAD) && !is_plan(nr, res) &&
			   !(me.cut_short && sf_signal_passes())) {
			int parked = res->flags & SF_R_PARK;
			if (parked)
				res->flags &= (u16)~SF_R_PARK;
			sf_signal_attach(res, parked && may_go_on());
		} else if (unlikely(me.cut_short)) {
			res->flags |= SF_R_REST;
		}
	}
	if (unlikely(trapped) && act != ACT_THREAD && !(res->flags & (SF_R_SIGNAL | SF_R_PATCH | SF_R_REST | SF_R_PARK | SF_R_PARTS)))
		patch_site(res, trapped);
	if (unlikely(e->lockstep && !(res->flags & (SF_R_SIGNAL | SF_R_REST)) && !app.parts.stage && sf_epoch_due(res->out_len)))
		res->flags |= SF_R_EPOCH;
	res->flags |= (u16)(sf_threads_due() | sf_settle_due());
	sf_result_end_of(res, act == ACT_LEADER && !(res->flags & SF_R_PARK) ? c : NULL, a);
	if (unlikely(G->options & SF_O_PAIR) && act == ACT_LEADER)
		sf_pair_wait(e, res, c, a);
	sf_pair_end_turn();
	return res;
}

/* A follower's part: takes what the leader has published, and does what every replica does for itself. */
INLINE void follower_goes(struct sf_event *e, const struct sf_call *c, u32 nr, const u64 a[6], int act, const struct sf_result *done)
{
	if (!(done->flags & (SF_R_RESTART | SF_R_PARK))) {
		sf_before_wait(c, nr, a);
		if (!follower_acts(e, c, nr, a, act, done))
			me.poison |= SF_SPOILED;
	}
	if (unlikely(done->flags & SF_R_PATCH) && act != ACT_MEMORY)
		sf_apply_patch(PAYLOAD + done->aux, (u32)(done->out_off + done->out_len - done->aux));
}

static int is_x32(u32 nr)
{
	return (s32)nr >= 0 && (nr & 0x40000000u);
}

INLINE enum sf_claim claim_call(struct sf_event *e, struct sf_regs *r, void *arg)
{
	struct making *k = arg;
	u64 *a = k->a;
	arguments(r, a);
	u32 nr = k->nr = (u32)r->rax;
	/* The kernel takes the number for an int. Programs try what newer kernels have, and go without. Of the x32 calls it has some, or
	 * none; one number below 0 is ours. */
	k->own = (struct sf_call){ .class = nr == SF_NR_INT80 || is_x32(nr) ? SF_REFUSE : SF_DENY, .err = 38 /* ENOSYS */ };
	const struct sf_call *c = nr <= SF_CALLS_MAX ? row(nr, a, &k->own) : &k->own;
	if (unlikely(G->options & SF_O_PAIR))
		c = sf_pair_row(nr, a, c, &k->own);
	k->c = c;

	if (c->class == SF_LOCAL) {
		r->rax = (u64)answered_here(c, a);
		return SF_NOTHING;
	}
	if (unlikely(me.together_until && me.next >= me.together_until))
		sf_stand_apart();
	if (unlikely(app.domain) && sf_domain_lacks(r))
		return SF_ANEW;
	if (unlikely(app.map_files) && sf_shared_before(r, c, nr, a))
		return SF_ANEW;
	if (unlikely(c->handler == SF_H_fork && c->class == SF_COMMIT) && sf_spawn_before(r, nr, a))
		return SF_ANEW;
	if (unlikely(app.domain) && sf_domain_ready(r, c, nr, a))
		return SF_ANEW;
	*e = (struct sf_event){ .seq = me.next, .nr = nr, .kind = SF_K_SYSCALL };
	if (unlikely(e->seq == tls.flip_event)) {
		SF_FLIP_POINT(e->seq, flip_event, SF_T_EVENT);
		return SF_ANEW; /* with the registers as they are now */
	}
	for (int i = 0; i < 6; i++)
		e->args[i] = c->arg[i].kind == SF_A_NONE ? 0 : a[i];
	sf_digest_args(e, c, a);
	/* All have looked at a view before somebody else has his turn. */
	e->lockstep = c->class != SF_QUERY || (unlikely(app.map_files) && sf_domain_waits(nr, a));
	return SF_CLAIMED;
}

static int stands_call(const struct sf_event *e, struct sf_regs *r, void *arg)
{
	struct making *k = arg;
	(void)r;
	if (sf_alone() || me.made == e->seq)
		return 1;
	arguments(k->r, k->a);
	return is_still_meant(e, k);
}

INLINE void agreed_call(struct sf_event *e, struct sf_regs *r, void *arg)
{
	struct making *k = arg;
	u64 *a = k->a;
	if (unlikely(e->seq == tls.flip_voted)) {
		SF_FLIP_POINT(e->seq, flip_voted, SF_T_VOTED);
		a[0] = r->rdi, a[1] = r->rsi, a[2] = r->rdx, a[3] = r->r10, a[4] = r->r8, a[5] = r->r9;
	}
	if (unlikely(k->c->handler == SF_H_fork || app.spawn.active))
		sf_spawn_hook(e, r, k->c, k->nr, a);
	if (unlikely(app.domain))
		sf_domain_call(k->c, k->nr, a, r);
	ends_here(r, k->c, k->nr, a);
	if (unlikely(G->options & SF_O_PAIR)) {
		sf_pair_private(k->nr, a);
		if (unlikely(k->c->handler == SF_H_exec))
			sf_pair_exec(e, k->nr, a);
	}
	k->act = how(k->c);
}

INLINE const struct sf_result *act_call(struct sf_event *e, void *arg)
{
	struct making *k = arg;
	if (k->act == ACT_RETURN) /* the mask that the frame brings back may let signals through that wait */
		return sf_result_flags(e, sf_signals_wait() ? SF_R_MORE : 0);
	acting = k;
	const struct sf_result *done = leader_goes(e, k->c, k->nr, k->a, k->act, k->trapped);
	acting = NULL;
	return done;
}

INLINE void take_call(struct sf_event *e, const struct sf_result *done, void *arg)
{
	struct making *k = arg;
	if (k->act != ACT_RETURN && !is_plan(k->nr, done))
		follower_goes(e, k->c, k->nr, k->a, k->act, done);
}

INLINE int done_call(struct sf_event *e, const struct sf_result *done, void *arg)
{
	struct making *k = arg;
	struct sf_regs *r = k->r;
	const u32 flags = done->flags;
	s64 ret = done->ret;
	(void)e;
	if (k->act == ACT_RETURN)
		return 0;
	if (is_plan(k->nr, done)) {
		sf_parts_begin(r, ret, done->aux);
		return 0;
	}
	if (unlikely(flags & SF_R_PARTS))
		sf_shown_applies(done);
	if (unlikely(flags & SF_R_SHARED))
		sf_written_done(done, k->nr, k->a);
	if (unlikely(flags & SF_R_SPAWNED))
		sf_spawn_goes_on(e, done);
	if (unlikely(flags & SF_R_REST)) {
		rest_of_call(r, k->nr, (u64)ret);
		return 0;
	}
	if (unlikely(flags & SF_R_PARK)) {
		/* When it waits is a matter of time: no event of the program's, which counts its own. */
		me.own_event = 1;
		sf_before_wait(k->c, k->nr, k->a);
		sf_thread_parks(r, k->nr, done->aux, (u64)ret);
		return 0;
	}
	if (unlikely(app.done_of_call) && !(flags & SF_R_RESTART))
		ret = whole_call(r, k->nr, ret);
	if (unlikely(app.shown_n))
		sf_shown_changed(k->nr, k->a, ret);
	if (unlikely(ret == -EOWNERDEAD) && k->nr == NR_futex) {
		sf_owner_note(k->a);
		ret = 0;
	}
	if (unlikely(k->nr == NR_shmget) && ret >= 0)
		sf_domain_made(k->a, ret, flags & SF_R_SHARED);
	if (unlikely(SF_IN_SET(sf_kernel_calls, k->nr)) && ret >= 0)
		sf_kernel_note(k->nr, k->a, ret);
	if (unlikely(flags & SF_R_SIGNAL))
		memcpy(&k->info, PAYLOAD + done->aux, sizeof k->info);
	if (!(flags & SF_R_RESTART)) {
		r->rax = (u64)ret;
		if (unlikely(app.threads))
			sf_thread_spends(k->nr);
	}
	if (unlikely(app.parts.stage))
		sf_parts_go_on(r, ret, flags, &k->info);
	return 0;
}

static const struct sf_step call = { claim_call, agreed_call, act_call, take_call, done_call, 0, stands_call };

/* Back to the program, by way of what the result brings along: a signal, more signals, a memory check. */
INLINE void go_back(struct sf_regs *r, u32 flags, const struct sf_siginfo *info)
{
	if (unlikely(flags & SF_R_SIGNAL)) {
		/* A call that was not made is made after the handler: its context is the entry
		 * of the agent with the registers of the call (rcx still holds the way back). */
		if (flags & SF_R_RESTART) {
			r->rcx = r->rip;
			r->rip = (u64)sf_entry_syscall;
		}
		sf_deliver(r, info);
	}
	if (unlikely(app.has_wait_mask))
		sf_after_wait();
	if (unlikely(app.domain))
		sf_domain_spends();
	if (unlikely(flags & (SF_R_MORE | SF_R_SETTLE | SF_R_EPOCH | SF_R_TURN | SF_R_LOOK)))
		sf_turn_brings(flags);
	if (unlikely(app.turn))
		sf_turn(r);
	if (unlikely(app.domain))
		sf_domain_after(r);
}

void sf_on_syscall(struct sf_regs *r)
{
	struct making k;
	struct sf_event e;
	s32 flags;
	tls.inside = 1;
	me.regs = r;
	me.doing = SF_D_SYSCALL;
	k.r = r;
	k.trapped = me.trapped;
	me.trapped = 0;
	do {
		flags = sf_event(&e, r, &call, &k);
		if (flags == SF_UNDONE)
			return;
		if (unlikely(app.parts.stage))
			k.trapped = 0;
	} while (unlikely(flags & SF_R_REST) || unlikely(app.parts.stage && !(flags & SF_R_PARK) && !sf_parts_rest(r)));
	if (unlikely(app.parts.over))
		flags = (s32)sf_parts_over((u32)flags, &k.info);
	if (unlikely(k.act == ACT_RETURN)) {
		sf_do_sigreturn(r);
		if (unlikely(app.threads))
			sf_thread_spends(15);
		sf_turn_brings((u32)flags & SF_R_MORE);
		if (unlikely(app.turn))
			sf_turn(r);
		return;
	}
	go_back(r, (u32)flags, &k.info);
}

static enum sf_claim claim_signal(struct sf_event *e, struct sf_regs *r, void *arg)
{
	(void)r, (void)arg;
	*e = (struct sf_event){ .seq = me.next, .kind = SF_K_SIGNAL, .lockstep = 1 };
	me.own_event = 1;
	return SF_CLAIMED;
}

static const struct sf_result *act_signal(struct sf_event *e, void *arg)
{
	struct sf_result *res = sf_result_begin(e, 0);
	(void)arg;
	if (sf_signal_pending())
		sf_signal_attach(res, 0);
	if (unlikely(me.gives))
		res->flags |= SF_R_TURN;
	me.gives = 0;
	sf_result_end(res);
	return res;
}

static int done_signal(struct sf_event *e, const struct sf_result *done, void *arg)
{
	(void)e;
	if (done->flags & SF_R_SIGNAL)
		memcpy(arg, PAYLOAD + done->aux, sizeof(struct sf_siginfo));
	return 0;
}

static const struct sf_step signal = { claim_signal, NULL, act_signal, NULL, done_signal, 0 };

/* As the kernel does before it returns to the program: every signal that may be delivered now
 * gets its frame, each on top of the one before. */
void sf_more_signals(struct sf_regs *r)
{
	struct sf_event e;
	s32 flags;
	me.doing = SF_D_ENTROPY;
	me.doing_desc = SF_DESC_SIGNALS;
	do {
		struct sf_siginfo info;
		flags = sf_event(&e, r, &signal, &info);
		if (flags & SF_R_SIGNAL)
			sf_deliver(r, &info);
		if (unlikely(flags & SF_R_TURN))
			app.preempts = 1;
	} while (flags & SF_R_MORE);
	if (unlikely(app.preempts)) {
		app.preempts = 0;
		sf_threads_preempt(r);
	}
}

/* An event whose result is a bare word. */
const struct sf_result *sf_result_flags(struct sf_event *e, u32 flags)
{
	struct sf_result *res = sf_result_begin(e, 0);
	res->flags |= (u16)flags;
	sf_result_end(res);
	return res;
}
