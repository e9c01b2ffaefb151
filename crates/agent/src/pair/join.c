/* Join: the descriptors of a program that goes on alone, for a site that comes back.
 *
 *   survivor, paused    GIVE ──► log anew, working directory, umask, each descriptor, registers ──► area, transfer
 *   joiner, nobody yet  POOL ──► what several processes have in common; BEAR: those processes, which inherit it (spawn.c)
 *                       TAKE ──► the same directory, umask and descriptors; RECEIVE: the same program (recover.c)
 *
 * Memory is the launchers' business (crates/replica/src/join.rs). A file is opened by its name, at its place; a socket is
 * one that nobody uses until this site leads, as in storage.c; of a connection the survivor's kernel tells what is under
 * way, so that the joiner can count on from there. Which open files several processes share, which sockets are a pair, and
 * which signals a descriptor is for, the launcher finds out (crates/replica/src/site/open.rs).
 *
 * Invariant: what cannot be made again is refused before anything is copied. The survivor then goes on as it was.
 *
 * Not covered: record locks (nobody else uses the joiner's files); connections that nobody has accepted yet.
 */
#include "agent.h"
#include "ground/stat.h"
#include "pair/storage.h"

#include <asm/errno.h>

enum { SO_TYPE = 3, SO_PROTOCOL = 38, SO_DOMAIN };
#define O_CLOEXEC 02000000
#define F_GETFD 1
#define F_SETFD 2
#define F_GETFL 3
#define F_SETFL 4
#define O_AS_MADE (0100 | 0200 | 0400 | 01000) /* O_CREAT, O_EXCL, O_NOCTTY, O_TRUNC: not kept by the kernel, and not meant again */

#define AREA ((struct sf_held_area *)(SF_SHARED + SF_OFF_HELD))
#define TEXT_FROM ((sizeof(struct sf_held_area) + 63) & ~63ull)
#define TEXT_TO (SF_PAYLOAD_BYTES - SENT_BYTES)
#define TEXT(at) ((u8 *)AREA + (at))
_Static_assert(sizeof(struct sf_line) <= sizeof((struct sf_held *)0)->line, "a connection fits");

/* Level and name of what is set alike on the joiner's sockets. */
static const struct {
	u16 level, name;
} options[SF_HELD_OPTIONS] = {
	{ 1, 2 },   { 1, 15 }, { 1, 9 },  { 1, 6 }, { 1, 10 }, /* SO_REUSEADDR, REUSEPORT, KEEPALIVE, BROADCAST, OOBINLINE */
	{ 41, 26 }, /* IPV6_V6ONLY */
	{ 6, 1 },   { 6, 3 },  { 6, 9 },  { 6, 4 }, { 6, 5 },
	{ 6, 6 },   { 6, 18 }, { 6, 23 }, /* TCP_NODELAY, CORK, DEFER_ACCEPT,
	                                             KEEPIDLE, KEEPINTVL, KEEPCNT, USER_TIMEOUT, FASTOPEN */
};

/* What lies between one agent and the other one goes through both launchers. */
static u64 sum_of(u64 sum, const void *p, u64 bytes)
{
	for (u64 i = 0; i < bytes / 8; i++)
		__asm__("crc32q %1, %0" : "+r"(sum) : "r"(((const u64 *)p)[i]));
	return sum;
}

static u64 sum_of_area(void)
{
	const u64 at = __builtin_offsetof(struct sf_held_area, sum), behind = at + 8;
	if (AREA->end < sizeof *AREA || AREA->end > SF_PAYLOAD_BYTES)
		return ~0ull;
	return sum_of(sum_of(0, AREA, at), (const u8 *)AREA + behind, AREA->end - behind);
}

static u64 sum_of_registers(void)
{
	return sum_of(0, (const void *)(SF_SHARED + SF_OFF_TRANSFER), SF_OFF_SEEK_WORDS - SF_OFF_TRANSFER);
}

static int is_socket_join(u32 class)
{
	return class == F_SOCKET || class == F_LISTEN || class == F_CONNECTION || class == F_OUTGOING;
}

static u32 word_of(u32 fd, u32 level, u32 name, u32 *known)
{
	u32 v = 0, len = sizeof v;
	*known = sys6(NR_getsockopt, fd, level, name, &v, &len, 0) == 0;
	return v;
}

/* Of a local socket that has a name: who may connect to it, in place of a connection's account. */
struct named {
	u32 known, mode, user, group;
};

static void give_name(struct sf_held *h)
{
	struct named name = { 0 };
	struct stat st;
	if (h->domain != 1 /* AF_UNIX */ || h->own_len <= 2 || !h->own[2])
		return;
	if (sys2(NR_stat, h->own + 2, &st) == 0)
		name = (struct named){ 1, st.mode & 07777, st.uid, st.gid };
	memcpy(h->line, &name, sizeof name);
}

static void take_name(const struct sf_held *h)
{
	struct named name;
	memcpy(&name, h->line, sizeof name);
	if (h->domain != 1 || h->own_len <= 2 || !h->own[2] || !name.known)
		return;
	sys3(NR_chown, h->own + 2, name.user, name.group);
	sys2(NR_chmod, h->own + 2, name.mode);
}

/* 0, or why it cannot be handed on. */
static s64 give_socket(struct sf_held *h)
{
	u32 known, len = sizeof h->own;
	h->domain = word_of((u32)h->fd, 1, SO_DOMAIN, &known);
	h->type = word_of((u32)h->fd, 1, SO_TYPE, &known);
	h->protocol = word_of((u32)h->fd, 1, SO_PROTOCOL, &known);
	h->backlog = sf_line[h->fd].backlog;
	for (u32 i = 0; i < SF_HELD_OPTIONS; i++) {
		h->option[i] = (s32)word_of((u32)h->fd, options[i].level, options[i].name, &known);
		h->set |= known << i;
	}
	if (h->class == F_CONNECTION) {
		struct sf_line l;
		h->text_len = (u32)sf_learn((u32)h->fd, &l, AREA->end <= TEXT_TO ? TEXT(AREA->end) : NULL);
		if (AREA->end > TEXT_TO)
			l.known = 0;
		memcpy(h->line, &l, sizeof l);
	} else if (h->class != F_OUTGOING && sys3(NR_getsockname, (u32)h->fd, h->own, &len) == 0) {
		if (len > sizeof h->own)
			return -ENAMETOOLONG; /* a local socket */
		h->own_len = len;
		give_name(h);
	}
	return 0;
}

/* One of a pair of sockets has an empty message; or the other end is half closed, and not gone (POLLHUP). */
static int is_half_closed(u32 fd)
{
	struct {
		s32 fd;
		u16 events, revents;
	} p = { (s32)fd, 1 /* POLLIN */, 0 };
	return sys3(NR_poll, &p, 1, 0) > 0 && !(p.revents & 0x10);
}

static int has_counted(u32 fd)
{
	struct {
		s32 fd;
		u16 events, revents;
	} p = { (s32)fd, 1 /* POLLIN */, 0 };
	return sys3(NR_poll, &p, 1, 0) != 0;
}

/* 0, or why this descriptor cannot be handed on. */
static s64 give_one(struct sf_held *h)
{
	const u32 fd = (u32)h->fd;
	struct stat st;
	s32 waits = 0;
	u32 known;
	s64 n;
	if (sys2(NR_fstat, fd, &st) < 0)
		return h->class == F_FOREIGN ? 0 : -EBADF;
	h->flags = (u32)sys2(NR_fcntl, fd, F_GETFL);
	h->cloexec = (u32)sys2(NR_fcntl, fd, F_GETFD) & 1;
	switch (h->class) {
	case F_FILE:
	case F_DIRECTORY:
	case F_PROTECTED:
	case F_DEVICE:
		n = sf_fd_name(fd, (char *)TEXT(AREA->end), 4095);
		if (n <= 0 || (st.nlink == 0 && memcmp(TEXT(AREA->end), "/memfd:", 7) != 0))
			return -ENOENT; /* it has no name any more, and is no memory object, which the launcher hands on */
		TEXT(AREA->end)[n] = 0;
		h->text_len = (u32)n + 1;
		n = sys3(NR_lseek, fd, 0, 1 /* SEEK_CUR */);
		h->place = n > 0 ? (u64)n : 0;
		break;
	case F_PIPE:
		if (sys3(NR_ioctl, fd, 0x541b /* FIONREAD */, &waits) < 0 || waits)
			return -EBUSY; /* bytes are under way in it: until somebody reads them */
		h->place = st.ino;
		break;
	case F_SOCKET:
	case F_LISTEN:
	case F_CONNECTION:
	case F_OUTGOING:
		if ((n = give_socket(h)) < 0)
			return n;
		break;
	case F_DUPLEX:
		if (sys3(NR_ioctl, fd, 0x541b, &waits) < 0 || waits || is_half_closed(fd))
			return waits ? -EBUSY : -EAGAIN;
		h->type = word_of(fd, 1, SO_TYPE, &known);
		h->place = st.ino;
		break;
	case F_COUNTER:
	case F_SEMAPHORE:
		if (has_counted(fd))
			return -EBUSY;
		break;
	case F_TIMER:
		if ((n = sf_alarm_give(h)) < 0)
			return n;
		break;
	case F_WATCHES:
		if ((n = sf_watches_give(h)) < 0)
			return n;
		break;
	}
	h->text = (u32)AREA->end;
	AREA->end = (AREA->end + h->text_len + 63) & ~63ull;
	return AREA->end < TEXT_TO + SENT_BYTES - 8192 ? 0 : -ENOSPC;
}

/* Which lower descriptor is one of the same open file: they share a place. Negative: the kernel does not say. */
static s64 same_as(const struct sf_held *h, u32 n)
{
	const s64 pid = sys0(NR_getpid);
	for (u32 i = 0; i < n; i++) {
		const struct sf_held *o = &AREA->held[i];
		if (o->class != h->class || o->as >= 0 || (o->text_len != h->text_len && !is_socket_join(h->class)))
			continue;
		s64 r = sys6(NR_kcmp, pid, pid, 0 /* KCMP_FILE */, o->fd, h->fd, 0);
		if (r < 0)
			return r;
		if (r == 0)
			return o->fd + 1;
	}
	return 0;
}

/* A copy (dup(2)) of a descriptor before it. Watches may have been added by either. */
static void stands_for(struct sf_held *h, s32 fd)
{
	h->as = fd;
	for (struct sf_held *o = AREA->held; h->class == F_WATCHES && o < h; o++)
		if (o->fd == fd && o->place < h->place)
			o->place = h->place;
}

/* The survivor, which stands between two events: 0; a descriptor that cannot be handed on, and 1000, below 0, or SF_UNDER_WAY where that
 * may pass; or the errno. */
s64 sf_pair_give(void)
{
	struct sf_held_area *a = AREA;
	s64 r;
	if (me.made == me.next)
		return -EAGAIN; /* the kernel has acted, and the log does not have it */
	me.base = G->base = me.next;
	me.out = 0;
	me.reset_pending = 0;
	sf_log_anew();
	a->n = a->polled_n = 0;
	if ((r = sf_shown_give(TEXT(TEXT_FROM))) < 0)
		return r;
	a->end = TEXT_FROM + (((u64)r + 63) & ~63ull);
	a->mask = (u32)sys1(NR_umask, 0);
	sys1(NR_umask, a->mask);
	a->pool = 0;
	a->clock = sf_now();
	r = sys3(NR_readlink, "/proc/self/cwd", a->directory, sizeof a->directory - 1);
	if (r < 0)
		return r;
	a->directory[r] = 0;
	for (s32 fd = 0; fd < (s32)FDS_MAX; fd++) {
		struct sf_held *h = &a->held[a->n];
		if (sf_fd_class[fd] == F_NONE)
			continue;
		memset(h, 0, sizeof *h);
		h->fd = fd;
		h->as = -1;
		h->class = sf_fd_class[fd];
		if ((r = give_one(h)) < 0)
			return -(r == -EBUSY ? SF_UNDER_WAY : 1000) - fd;
		if ((r = same_as(h, a->n)) < 0)
			return r;
		if (r > 0)
			stands_for(h, (s32)r - 1);
		a->n++;
	}
	sf_domain_tell();
	sf_domain_give(&a->tickets, &a->turn);
	sf_send();
	a->sum_registers = sum_of_registers();
	a->sum = sum_of_area();
	return 0;
}

static s64 put_at_join(s64 own, s64 want)
{
	if (own < 0 || own == want)
		return own;
	s64 r = sys3(NR_dup3, own, want, O_CLOEXEC);
	sys1(NR_close, own);
	return r;
}

#define PORT_TRIES 1000 /* one a millisecond: the survivor's program may stand still meanwhile */

/* The name of a local socket that this host's last program has left behind: nobody listens there, and the program's own is bound anew. */
static s64 bind_anew(s64 fd, const struct sf_held *h, s64 failed)
{
	if (failed != -EADDRINUSE || h->domain != 1 /* AF_UNIX */ || !h->own[2])
		return failed;
	s64 asks = sys3(NR_socket, h->domain, h->type | O_CLOEXEC, h->protocol);
	s64 r = sys3(NR_connect, asks, h->own, h->own_len);
	sys1(NR_close, asks);
	if (r != -ECONNREFUSED)
		return failed;
	sys1(NR_unlink, h->own + 2);
	return sys3(NR_bind, fd, h->own, h->own_len);
}

static s64 take_socket(const struct sf_held *h)
{
	static const struct {
		s64 sec, nsec;
	} pause = { 0, 1000000 };
	static const u32 one = 1;
	s64 fd = sys3(NR_socket, h->domain, h->type | (h->flags & 04000 /* SOCK_NONBLOCK */), h->protocol);
	if (fd < 0)
		return fd;
	for (u32 i = 0; i < SF_HELD_OPTIONS; i++)
		if (h->set >> i & 1)
			sys6(NR_setsockopt, fd, options[i].level, options[i].name, &h->option[i], sizeof h->option[i], 0);
	if (h->class != F_CONNECTION && h->own_len > 2) { /* an address that this site gets when it leads; 2: none */
		sys6(NR_setsockopt, fd, 0, 15 /* IP_FREEBIND */, &one, sizeof one, 0);
		sys6(NR_setsockopt, fd, 41, 78 /* IPV6_FREEBIND */, &one, sizeof one, 0);
		const u16 port = (u16)(h->own[2] << 8 | h->own[3]);
		s64 r = port || h->domain == 1 /* AF_UNIX */ ? sys3(NR_bind, fd, h->own, h->own_len) : 0;
		r = bind_anew(fd, h, r);
		/* The program that this site has just handed over: its snapshots hold the port until the kernel has ended them. */
		for (u32 tries = 0; r == -EADDRINUSE && tries < PORT_TRIES; tries++) {
			sys2(NR_nanosleep, &pause, 0);
			r = sys3(NR_bind, fd, h->own, h->own_len);
		}
		if (r < 0) {
			sys1(NR_close, fd);
			return r;
		}
		take_name(h);
	}
	return fd;
}

/* Both ends of a pipe, or of a pair of sockets, each at its number: the first is at hand. */
static s64 take_two(struct sf_held_area *a, u32 i)
{
	struct sf_held *h = &a->held[i], *o = NULL;
	s32 two[2];
	for (u32 k = 0; k < a->n; k++)
		if (a->held[k].class == h->class && a->held[k].as < 0 && k != i && a->held[k].place == h->place)
			o = &a->held[k];
	const u32 writes = h->class == F_PIPE && (h->flags & 1 /* O_WRONLY */);
	s64 r = h->class == F_PIPE ? sys2(NR_pipe2, two, (h->flags & 04000 /* O_NONBLOCK */) | O_CLOEXEC)
				   : sys4(NR_socketpair, 1 /* AF_UNIX */, h->type | O_CLOEXEC, 0, two);
	if (r < 0)
		return r;
	/* Above all that the program has: either number may be the other's. */
	s64 near = sys3(NR_fcntl, two[writes], 1030 /* F_DUPFD_CLOEXEC */, FDS_MAX - 64),
	    far = sys3(NR_fcntl, two[!writes], 1030, FDS_MAX - 64);
	sys1(NR_close, two[0]);
	sys1(NR_close, two[1]);
	if (near < 0 || far < 0)
		return near < 0 ? near : far;
	if (o && (r = put_at_join(far, o->fd)) >= 0) {
		o->as = o->fd; /* made: nobody comes by it again */
		sys3(NR_fcntl, r, F_SETFL, o->flags);
	} else
		sys1(NR_close, far);
	return r < 0 ? r : near;
}

static s64 take_one(struct sf_held_area *a, u32 i)
{
	struct sf_held *h = &a->held[i];
	s64 own;
	switch (h->class) {
	case F_FILE:
	case F_DIRECTORY:
	case F_PROTECTED:
	case F_DEVICE:
		own = sys3(NR_open, TEXT(h->text), (h->flags & ~(u32)O_AS_MADE) | O_CLOEXEC, 0);
		if (own >= 0 && h->class != F_DEVICE)
			sys3(NR_lseek, own, h->place, 0);
		break;
	case F_PIPE:
	case F_DUPLEX: own = take_two(a, i); break;
	case F_SIGNALS: own = sys4(NR_signalfd4, -1, &h->place, 8, O_CLOEXEC); break;
	case F_COUNTER: own = sys2(NR_eventfd2, 0, O_CLOEXEC); break;
	case F_SEMAPHORE: own = sys2(NR_eventfd2, 0, O_CLOEXEC | 1 /* EFD_SEMAPHORE */); break;
	case F_TIMER: own = sf_alarm_take(h); break;
	case F_WATCHES: own = sf_watches_take(h, TEXT(h->text)); break;
	case F_POLL: own = sys1(NR_epoll_create1, O_CLOEXEC); break;
	case F_SOCKET:
	case F_LISTEN:
	case F_CONNECTION:
	case F_OUTGOING: own = take_socket(h); break;
	case F_STREAM: /* this site's own */
		if (h->fd <= 2)
			return 0;
		return put_at_join(sys3(NR_fcntl, h->place, 1030 /* F_DUPFD_CLOEXEC */, FDS_MAX - 64), h->fd);
	default: /* F_FOREIGN: none */ return 0;
	}
	own = put_at_join(own, h->fd);
	if (own >= 0 && !is_socket_join(h->class))
		sys3(NR_fcntl, own, F_SETFL, h->flags);
	return own;
}

/* The first process, which is nobody yet and will have others: 0; a descriptor that cannot be made, and 1000, below 0. */
s64 sf_pair_pool(void)
{
	struct sf_held_area *a = AREA;
	if (a->sum != sum_of_area())
		return -EBADMSG;
	for (u32 i = 0; i < a->n && i < SF_HELD_MAX; i++)
		if (a->held[i].as != a->held[i].fd && take_one(a, i) < 0) /* else it was made with the other end */
			return -1000 - a->held[i].fd;
	return 0;
}

/* One that was accounted for before, and is the same open file: each names the other, or both name one that several processes have. */
static const struct sf_held *same_line(const struct sf_held *h)
{
	for (const struct sf_held *o = AREA->held; h->as >= 0 && o < h; o++)
		if (o->class == F_CONNECTION && (o->fd == h->as || o->as == h->as))
			return o;
	return NULL;
}

/* What the agent keeps of a descriptor. */
static void account(const struct sf_held *h)
{
	sf_fd_class[h->fd] = (u8)h->class;
	if (h->class == F_DIRECTORY)
		sf_listing_lost((u32)h->fd);
	if (is_socket_join(h->class))
		sf_line[h->fd].backlog = h->backlog;
	if (h->class == F_WATCHES)
		sf_watches_begin((u32)h->fd, (s64)h->place);
	if (h->class != F_CONNECTION)
		return;
	const struct sf_held *o = same_line(h);
	if (o) {
		sf_line_copied((u64)o->fd, (u64)h->fd);
		return;
	}
	sf_line_begins((u64)h->fd);
	struct sf_count *c = &sf_line[sf_line_of((u64)h->fd)];
	memcpy(&c->l, h->line, sizeof c->l);
	c->sent = h->text_len;
	if (h->text_len)
		memcpy(SENT(sf_line_of((u64)h->fd)), TEXT(h->text), h->text_len);
}

/* The joiner, which has the survivor's memory: 0; a descriptor that cannot be made, and 1000, below 0; or the errno. */
s64 sf_pair_take(void)
{
	struct sf_held_area *a = AREA;
	if (a->sum != sum_of_area() || a->sum_registers != sum_of_registers())
		return -EBADMSG;
	s64 r = sf_sent_ring();
	if (r < 0 || (r = sys1(NR_chdir, a->directory)) < 0)
		return r;
	sys1(NR_umask, a->mask);
	sf_threads_heard(a->clock);
	/* Mappings may have been made before the program was paused (recover.c, sf_remap). */
	sf_heap_is(TRANSFER->app.brk_now, ((const u64 *)(SF_SHARED + SF_OFF_TRANSFER + 65536))[3]);
	u32 streams = 0;
	for (u32 i = 0; i < a->n; i++)
		if (a->held[i].class == F_STREAM && a->held[i].as < 0)
			streams |= 1u << a->held[i].fd;
	for (u32 fd = 0; fd < 3; fd++)
		if (!(streams >> fd & 1))
			sys1(NR_close, fd);
	sys3(NR_close_range, 3, a->pool ? a->pool - 1 : FDS_MAX - 1, 0);
	memset(sf_fd_class, F_NONE, sizeof sf_fd_class);
	sf_domain_take(a->tickets, a->turn);
	for (u32 i = 0; i < a->n; i++) {
		struct sf_held *h = &a->held[i];
		account(h);
		if (h->as == h->fd) /* with the other end */
			r = 0;
		else if (h->as >= 0)
			r = sys3(NR_dup3, h->as, h->fd, O_CLOEXEC);
		else
			r = take_one(a, i);
		if (r < 0)
			return -1000 - h->fd;
		if (h->class != F_STREAM || h->as >= 0)
			sys3(NR_fcntl, h->fd, F_SETFD, h->cloexec);
	}
	if (a->pool)
		sys3(NR_close_range, a->pool, FDS_MAX - 1, 0);
	if ((r = sf_ipc_undoes()) < 0 || (r = sf_shown_take(TEXT(TEXT_FROM))) < 0)
		return r;
	for (u32 i = 0; i < a->polled_n && i < SF_POLLED_MAX; i++) {
		const struct sf_polled *p = &a->polled[i];
		struct {
			u32 events;
			u64 data;
		} __attribute__((packed)) event = { p->events, p->data };
		r = sys4(NR_epoll_ctl, p->set, 1 /* EPOLL_CTL_ADD */, p->fd, &event);
		if (r < 0 && r != -EEXIST) /* another process has the same set and descriptor from a parent, and was here before */
			return -1000 - p->fd;
	}
	return 0;
}
