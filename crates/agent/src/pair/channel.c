/* Channel: event counters and pairs of sockets in a pair, and descriptors that a message brings.
 *
 * As of a pipe (storage.c), only the primary's is in use. The secondary has one of its own at the same numbers, and does to it
 * what the log says: so it holds the same when this site has to lead.
 *
 *   primary    sendmsg(bytes, descriptors) ──► result in the log ──► its turn ends when the secondary has done it
 *   secondary  the same bytes and its own descriptors, sent on its own socket
 *   primary    recvmsg ──► bytes, numbers, and in the note the class of each number
 *   secondary  takes as much from its own socket, and puts what came at the primary's numbers
 *
 * Invariant: what cannot be done alike makes the descriptor one that is the primary's alone (F_FOREIGN). Then this site does
 * not lead; it never leads with a channel that holds something else.
 *
 * Not covered: recvmmsg(2) and sendmmsg(2); messages of more than 64 parts; SIGIO of such a socket
 * after a take-over; files by a message, which are refused by name.
 * See unix(7), socketpair(2), eventfd(2), cmsg(3).
 */
#include "agent.h"
#include "pair/storage.h"

#include <asm/errno.h>

#define MSG_PEEK 2u
#define MSG_DONTWAIT 0x40u
#define MSG_NOSIGNAL 0x4000u
#define MSG_CMSG_CLOEXEC 0x40000000u
#define HIGH (FDS_MAX - 128) /* numbers that few programs come to */
#define PARTS 64u
#define CONTROL 1024u

struct part {
	u64 base, len;
};
struct message {
	u64 name;
	u32 namelen, pad;
	u64 iov, iovlen, control, controllen;
	u32 flags, pad2;
};
_Static_assert(sizeof(struct message) == 56, "msghdr, x86-64");
struct rights {
	u64 len;
	u32 level, type;
	s32 fd[(CONTROL - 16) / 4];
};

static struct part part[PARTS];
static struct rights rights;
static u8 scratch[4096];

static int is_stream_channel(u64 fd)
{
	u32 type = 0, n = sizeof type;
	return sys6(NR_getsockopt, fd, 1 /* SOL_SOCKET */, 3 /* SO_TYPE */, &type, &n, 0) == 0 && type == 1;
}

/* ---- the primary ---- */

/* Both ends of a pair of sockets have no name. */
static int is_nameless(s32 fd)
{
	u32 domain = 0, n = sizeof domain;
	u8 name[28];
	if (sys6(NR_getsockopt, fd, 1, 39 /* SO_DOMAIN */, &domain, &n, 0) < 0 || domain != 1 /* AF_UNIX */)
		return 0;
	n = sizeof name;
	if (sys3(NR_getsockname, fd, name, &n) < 0 || n != 2)
		return 0;
	n = sizeof name;
	return sys3(NR_getpeername, fd, name, &n) == 0 && n == 2;
}

/* What a message has brought: the numbers, and what each is. `own`: from a channel, so that the secondary has them as well. */
u32 sf_channel_came(u64 msg, int own, struct sf_came *to)
{
	u32 n = sf_message_rights(msg, rights.fd, SF_CAME_MAX), st[36]; /* struct stat: st_mode is word 6 */
	for (u32 i = 0; i < n; i++) {
		const s32 fd = rights.fd[i];
		u32 kind = F_FOREIGN;
		if ((u32)fd < FDS_MAX && sys2(NR_fstat, fd, st) == 0) {
			const u32 mode = st[6] & 0170000;
			if (mode == 0100000 /* S_IFREG */ || mode == 0040000 /* S_IFDIR */)
				sf_end(SF_E_REFUSED, SF_NR_PAIR_HANDED, 0, me.regs);
			if (own && mode == 0010000 /* S_IFIFO */)
				kind = F_PIPE;
			else if (own && is_nameless(fd))
				kind = F_DUPLEX;
			sf_fd_class[fd] = (u8)kind;
		}
		to[i] = (struct sf_came){ fd, kind };
	}
	return n;
}

/* ---- the secondary ---- */

static void lost_channel(u64 fd)
{
	sf_fd_class[fd] = F_FOREIGN;
}

static int is_ready_channel(u64 fd)
{
	struct {
		s32 fd;
		u16 events, revents;
	} p = { (s32)fd, 1 /* POLLIN */, 0 };
	return sys3(NR_poll, &p, 1, 0) > 0;
}

/* The first `left` bytes of a call's parts, behind those that its events before have moved. Their number, or above PARTS. */
static u64 parts_of(u32 nr, const u64 a[6], u64 left)
{
	struct message m;
	u64 at = a[1], n = a[2], to = 0, skip = app.done_of_call;
	if (nr == NR_write || nr == NR_sendto) {
		part[0] = (struct part){ a[1], left };
		return 1;
	}
	if (nr == NR_sendmsg) {
		if (sf_user_bytes(&m, a[1], sizeof m) < 0)
			return PARTS + 1;
		at = m.iov;
		n = m.iovlen;
	}
	for (u64 i = 0; i < n && left; i++) {
		struct part p;
		if (to == PARTS || sf_user_bytes(&p, at + 16 * i, sizeof p) < 0)
			return PARTS + 1;
		const u64 over = p.len < skip ? p.len : skip;
		skip -= over;
		p.base += over;
		p.len -= over;
		if (p.len > left)
			p.len = left;
		left -= p.len;
		if (p.len)
			part[to++] = p;
	}
	return to;
}

static void sends_channel(u32 nr, const u64 a[6], u64 n)
{
	struct message m = { .iov = (u64)part, .iovlen = parts_of(nr, a, n) };
	const u32 carries = nr == NR_sendmsg && !app.done_of_call ? sf_message_rights(a[1], rights.fd, SF_CAME_MAX) : 0;
	if (m.iovlen > PARTS) {
		lost_channel((u32)a[0]);
		return;
	}
	if (carries) {
		rights.len = 16 + 4 * carries;
		rights.level = rights.type = 1; /* SOL_SOCKET, SCM_RIGHTS */
		m.control = (u64)&rights;
		m.controllen = (rights.len + 7) & ~7ull;
	}
	s64 r = sys3(NR_sendmsg, (u32)a[0], &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	/* The other end may be closed here already: nobody is to hear of it. */
	if (r != (s64)n && r != -EPIPE && r != -ECONNRESET)
		lost_channel((u32)a[0]);
}

static void put_those(const struct sf_came *came, u32 n, u64 cloexec)
{
	s64 own[SF_CAME_MAX];
	const u64 got = rights.len > 16 ? (rights.len - 16) / 4 : 0;
	/* Out of the way first: each number may be another one's. */
	for (u64 i = 0; i < got && i < SF_CAME_MAX; i++) {
		own[i] = sys3(NR_fcntl, rights.fd[i], 1030 /* F_DUPFD_CLOEXEC */, HIGH);
		sys1(NR_close, rights.fd[i]);
	}
	for (u32 i = 0; i < n; i++) {
		const s64 to = came[i].fd;
		if ((u64)to >= FDS_MAX)
			continue;
		sf_fd_class[to] = (u8)came[i].kind;
		if (got != n || own[i] < 0 || (came[i].kind != F_FOREIGN && sys3(NR_dup3, own[i], to, cloexec) != to))
			sf_fd_class[to] = F_FOREIGN;
		if (sf_fd_class[to] == F_FOREIGN)
			sys1(NR_close, to); /* whoever had the number has closed it */
	}
	for (u64 i = 0; i < got && i < SF_CAME_MAX; i++)
		if (own[i] >= 0)
			sys1(NR_close, own[i]);
}

static void gets(u32 nr, const u64 a[6], u64 n, const struct sf_came *came, u32 came_n)
{
	const u64 fd = (u32)a[0];
	const int stream = is_stream_channel(fd);
	if (stream && !n)
		return; /* the end, or a buffer without room */
	for (u64 left = n, first = 1; first || (stream && left); first = 0) {
		struct part all = { (u64)scratch, stream && left < sizeof scratch ? left : sizeof scratch };
		struct message m = { .iov = (u64)&all, .iovlen = 1 };
		if (first && nr == NR_recvmsg) {
			memset(&rights, 0, 16);
			m.control = (u64)&rights;
			m.controllen = sizeof rights;
		}
		s64 r = sys3(NR_recvmsg, fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (m.control && (r < 0 || m.controllen < 16))
			rights.len = 0;
		if (m.control)
			put_those(came, came_n, nr == NR_recvmsg && (a[2] & MSG_CMSG_CLOEXEC) ? 02000000 : 0);
		if (r < 0 || (stream && !r)) {
			lost_channel(fd);
			return;
		}
		left -= (u64)r < left ? (u64)r : left;
	}
}

/* What the program has done to a channel: the same here. */
void sf_channel_follow(u32 nr, const u64 a[6], s64 ret, const struct sf_came *came, u32 came_n)
{
	const u64 fd = (u32)a[0];
	if (ret < 0)
		return;
	if (sf_fd_class[fd] == F_COUNTER || sf_fd_class[fd] == F_SEMAPHORE) {
		if (nr == NR_write) {
			if (sys3(NR_write, fd, a[1], ret) != ret)
				lost_channel(fd);
		} else if (nr == NR_read && (!is_ready_channel(fd) || sys3(NR_read, fd, scratch, 8) != 8)) {
			lost_channel(fd);
		}
		return;
	}
	switch (nr) {
	case NR_write:
	case NR_writev:
	case NR_sendto:
	case NR_sendmsg: sends_channel(nr, a, (u64)ret); break;
	case NR_read:
	case NR_readv: gets(nr, a, (u64)ret, came, came_n); break;
	case NR_recvfrom:
		if (!(a[3] & MSG_PEEK))
			gets(nr, a, (u64)ret, came, came_n);
		break;
	case NR_recvmsg:
		if (!(a[2] & MSG_PEEK))
			gets(nr, a, (u64)ret, came, came_n);
		else
			put_those(came, came_n, 0); /* they come once more */
		break;
	case NR_shutdown: sys2(NR_shutdown, fd, a[1]); break;
	case NR_recvmmsg:
	case NR_sendmmsg: lost_channel(fd); break;
	}
}

/* Calls on a pair of sockets beside read(2) and write(2). */
int sf_channel_call(u32 nr)
{
	return (nr >= NR_sendto && nr <= NR_shutdown) || nr == NR_recvmmsg || nr == NR_sendmmsg;
}

int sf_channel_sends(u32 nr)
{
	return nr == NR_sendto || nr == NR_sendmsg || nr == NR_sendmmsg;
}

/* It would not wait. */
int sf_channel_at_once(u32 nr, const u64 a[6])
{
	const u64 flags = nr == NR_sendto || nr == NR_recvfrom || nr == NR_recvmmsg || nr == NR_sendmmsg ? a[3]
			  : nr == NR_sendmsg || nr == NR_recvmsg                                         ? a[2]
													 : 0;
	return nr == NR_shutdown || (flags & MSG_DONTWAIT) != 0;
}
