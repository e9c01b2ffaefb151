/* Args: compare and carry what a call's arguments point to, from the rows of calls.def.
 *
 * Before a call every replica digests its in-bytes; after it the leader appends the
 * out-bytes to the log and followers copy them to the same addresses. Lengths are computed
 * from the row, the arguments and the result, by the same code on both sides, so the log
 * carries no headers. The kernel may use what lies before memory that cannot be read or written:
 * there the same is done page by page, as far as it goes, which is equally far in every replica.
 */
#include "agent.h"
#include <asm/errno.h>

struct iovec {
	u64 base, len;
};
struct msghdr {
	u64 name;
	u32 namelen, pad;
	u64 iov, iovlen, control, controllen;
	u32 flags, pad2;
};

struct mmsghdr {
	struct msghdr hdr;
	u32 len, pad;
};
/* What an ioctl(2) is told of interfaces with. */
struct ifconf {
	s32 len;
	u32 pad;
	u64 at;
};
#define MESSAGES_MAX 1024 /* UIO_MAXIOV: the kernel takes no more at once (sendmmsg(2)) */

/* Capacities that the kernel overwrites with lengths: noted by the digest of this event. */
static u32 addr_cap;
static struct {
	u32 name;
	u32 control;
} caps[MESSAGES_MAX];

/* An argument's value as the kernel reads it. */
static u64 value(const struct sf_call *c, const u64 a[6], u32 i)
{
	switch (c->arg[i].kind) {
	case SF_A_I32: return (s32)a[i] < 0 ? 0 : (u32)a[i];
	case SF_A_U32: return (u32)a[i];
	default: return a[i];
	}
}

/* How many sets of 32 capabilities the header that was digested last asks for (capget(2)). */
static u64 cap_sets;

static u64 sets_of(u32 version)
{
	return version == 0x19980330 ? 1 : 2;
}

static u64 length_args(const struct sf_call *c, const struct sf_arg *k, const u64 a[6], s64 ret)
{
	if (k->len == SF_L_RET && ret < 0)
		return 0;
	u64 n = k->len == SF_L_ONE ? 1 : k->len == SF_L_RET ? (u64)ret : k->len == SF_L_CAPS ? cap_sets : value(c, a, k->len);
	if (k->cap != SF_L_ONE) {
		u64 cap = value(c, a, k->cap);
		if (n > cap)
			n = cap;
	}
	/* Linux moves at most MAX_RW_COUNT bytes in one call (read(2), NOTES). */
	if (n > 0x7ffff000)
		n = 0x7ffff000;
	u64 bytes = k->plus + n * k->size;
	return bytes > 0x7ffff000 ? 0x7ffff000 : bytes;
}

#define PAGE 4096ull

static u64 in_page(u64 at, u64 n)
{
	u64 rest = PAGE - at % PAGE;
	return n < rest ? n : rest;
}

/* rt_sigprocmask(2) reads the mask first, and then finds no way to apply it. */
static int is_readable(u64 at)
{
	return sys4(NR_rt_sigprocmask, -1, at, 0, 8) != -EFAULT;
}

/* A set of descriptors, as far as it is there: of as many as could be open the kernel looks at those alone that it has
 * room for (select(2)). Found out without a fault: one that strikes the leader behind its call begins the event anew,
 * with sets that are no longer what they were. */
static u64 fdset_bytes(u64 at, u64 nfds)
{
	const u64 all = (nfds > 65536 ? 65536 : nfds + 63) / 64 * 8;
	u64 n = in_page(at, all);
	while (n < all && is_readable(at + n))
		n += in_page(at + n, all - n);
	return n;
}

static void hash_iov(struct sf_hash *h, const struct iovec *v, u64 n, u64 limit, int contents)
{
	if (n > 1024)
		n = 1024; /* UIO_MAXIOV: the kernel refuses more */
	sf_hash_bytes(h, v, n * sizeof *v);
	for (u64 i = 0; contents && i < n && limit; i++) {
		u64 l = v[i].len < limit ? v[i].len : limit;
		sf_hash_bytes(h, (void *)v[i].base, l);
		limit -= l;
	}
}

struct pollfd {
	s32 fd;
	u16 events, revents;
};

/* What came of the last poll is no input, and a leader that was interrupted has other values
 * there already (poll(2): stored whatever the result). */
static void hash_pollfds(struct sf_hash *h, const struct pollfd *p, u64 bytes)
{
	for (u64 i = 0; i < bytes / sizeof *p; i++)
		h->a = sf_mix(h->a, (u64)(u32)p[i].fd << 32 | p[i].events);
}

static void hash_ifconf(struct sf_hash *h, const struct ifconf *f)
{
	sf_hash_bytes(h, &f->len, sizeof f->len);
	sf_hash_bytes(h, &f->at, sizeof f->at);
}

static void hash_message(struct sf_hash *h, const struct msghdr *m, u32 index, int in)
{
	sf_hash_bytes(h, m, 48); /* flags are out only */
	if (in && m->name)
		sf_hash_bytes(h, (void *)m->name, m->namelen);
	if (in && m->control)
		sf_hash_bytes(h, (void *)m->control, m->controllen);
	if (m->iov)
		hash_iov(h, (void *)m->iov, m->iovlen, 0x7ffff000, in);
	caps[index].name = m->name ? m->namelen : 0;
	caps[index].control = m->control ? (u32)m->controllen : 0;
}

/* What is left of a message is received with the room that the program gave for the whole. */
void sf_message_again(u64 at)
{
	const u64 control = caps[0].control;
	sf_user_put(at + 8, &caps[0].name, 4);
	sf_user_put(at + 40, &control, 8);
}

static u32 messages(const u64 a[6])
{
	return (u32)a[2] > MESSAGES_MAX ? MESSAGES_MAX : (u32)a[2];
}

/* The length of an address that nobody asks for: the kernel does not look at it. */
static int unasked(const struct sf_call *c, const u64 a[6], int i)
{
	return c->arg[i].when == SF_W_NAMED && !a[i - 1];
}

static void digest_args(struct sf_event *e, const struct sf_call *c, const u64 a[6])
{
	struct sf_hash *h = &e->bytes;
	addr_cap = 0;
	if (c->arg[1].len == SF_L_CAPS && a[0])
		cap_sets = sets_of(*(const u32 *)a[0]);
	if (c->handler == SF_H_mmsg) {
		const struct mmsghdr *m = (void *)a[1];
		for (u32 i = 0; i < messages(a); i++)
			hash_message(h, &m[i].hdr, i, e->nr == NR_sendmmsg);
		if (e->nr == NR_recvmmsg && a[4])
			sf_hash_bytes(h, (void *)a[4], 16);
		return;
	}
	if (e->nr == NR_pselect6 && a[5] && *(u64 *)a[5])
		sf_hash_bytes(h, (void *)*(u64 *)a[5], 8); /* the mask, behind a pointer of its own */
	for (int i = 0; i < 6; i++) {
		const struct sf_arg *k = &c->arg[i];
		if (k->kind <= SF_A_VAL || k->kind == SF_A_OUT || k->kind == SF_A_OUT_PAGES || !a[i] || unasked(c, a, i))
			continue;
		switch (k->kind) {
		case SF_A_STR: sf_hash_bytes(h, (void *)a[i], sf_strlen((char *)a[i])); break;
		case SF_A_STRV:
			for (const char *const *v = (void *)a[i]; *v; v++)
				sf_hash_bytes(h, *v, sf_strlen(*v));
			break;
		case SF_A_IN:
		case SF_A_INOUT:
			if (c->handler == SF_H_poll && k->size == sizeof(struct pollfd) && i == 0)
				hash_pollfds(h, (void *)a[i], length_args(c, k, a, 0));
			else
				sf_hash_bytes(h, (void *)a[i], length_args(c, k, a, 0));
			break;
		case SF_A_IN_IOV: hash_iov(h, (void *)a[i], value(c, a, k->len), 0x7ffff000, 1); break;
		case SF_A_OUT_IOV: hash_iov(h, (void *)a[i], value(c, a, k->len), 0, 0); break;
		case SF_A_IN_MSG:
		case SF_A_OUT_MSG: {
			hash_message(h, (void *)a[i], 0, k->kind == SF_A_IN_MSG);
			break;
		}
		case SF_A_OUT_ADDR:
			addr_cap = a[k->len] ? *(u32 *)a[k->len] : 0;
			sf_hash_bytes(h, &addr_cap, 4);
			break;
		case SF_A_FDSET: sf_hash_bytes(h, (void *)a[i], fdset_bytes(a[i], value(c, a, k->len))); break;
		case SF_A_IFCONF: hash_ifconf(h, (void *)a[i]); break;
		}
	}
}

/* 0: not all of it can be read. */
static int hash_readable(struct sf_hash *h, u64 at, u64 n)
{
	static u8 page[PAGE];
	for (u64 l; n; at += l, n -= l) {
		l = in_page(at, n);
		if (sf_user_bytes(page, at, l) < 0)
			return 0;
		sf_hash_bytes(h, page, l);
	}
	return 1;
}

static int hash_readable_iov(struct sf_hash *h, u64 at, u64 n, u64 limit)
{
	struct iovec v;
	for (u64 i = 0; i < n && i < 1024 && limit; i++) {
		if (sf_user_bytes(&v, at + i * sizeof v, sizeof v) < 0)
			return 0;
		sf_hash_bytes(h, &v, sizeof v);
		u64 l = v.len < limit ? v.len : limit;
		if (!hash_readable(h, v.base, l))
			return 0;
		limit -= l;
	}
	return 1;
}

static int hash_readable_message(struct sf_hash *h, u64 at, u32 index, int in)
{
	struct msghdr m = { .name = 0 };
	int readable = sf_user_bytes(&m, at, sizeof m) == 0;
	caps[index].name = m.name ? m.namelen : 0;
	caps[index].control = m.control ? (u32)m.controllen : 0;
	if (!readable)
		return 0;
	sf_hash_bytes(h, &m, 48);
	if (!in)
		return 1;
	return hash_readable(h, m.name, caps[index].name) && hash_readable(h, m.control, caps[index].control) &&
	       hash_readable_iov(h, m.iov, m.iovlen, 0x7ffff000);
}

/* The kernel takes what comes before the byte that it cannot read, of a vector as of several messages, and of a set of
 * descriptors as many as there are. Strings it takes whole or not at all. */
static void digest_readable(struct sf_event *e, const struct sf_call *c, const u64 a[6])
{
	struct sf_hash *h = &e->bytes;
	*h = (struct sf_hash){ 0xefa017, 0 };
	if (c->arg[1].len == SF_L_CAPS) {
		u32 version = 0;
		sf_user_bytes(&version, a[0], sizeof version);
		cap_sets = sets_of(version);
	}
	if (c->handler == SF_H_mmsg) {
		for (u32 i = 0; i < messages(a); i++)
			if (!hash_readable_message(h, a[1] + i * sizeof(struct mmsghdr), i, e->nr == NR_sendmmsg))
				break;
		return;
	}
	for (int i = 0; i < 6; i++) {
		const struct sf_arg *k = &c->arg[i];
		if (!a[i] || unasked(c, a, i))
			continue;
		switch (k->kind) {
		case SF_A_IN: hash_readable(h, a[i], length_args(c, k, a, 0)); break;
		case SF_A_IN_IOV: hash_readable_iov(h, a[i], value(c, a, k->len), 0x7ffff000); break;
		case SF_A_IN_MSG:
		case SF_A_OUT_MSG: hash_readable_message(h, a[i], 0, k->kind == SF_A_IN_MSG); break;
		case SF_A_FDSET: hash_readable(h, a[i], fdset_bytes(a[i], value(c, a, k->len))); break;
		case SF_A_OUT_ADDR: sf_user_bytes(&addr_cap, a[k->len], sizeof addr_cap); break;
		}
	}
}

/* What a row has, worked out once: most calls point to nothing. */
enum { KNOWN = 1, READS = 2, WRITES = 4 };

static u32 traits_of(const struct sf_call *c)
{
	u32 t = KNOWN | (c->handler == SF_H_mmsg ? READS | WRITES : 0);
	for (int i = 0; i < 6; i++) {
		u32 k = c->arg[i].kind;
		if (k <= SF_A_VAL)
			continue;
		if (k != SF_A_OUT && k != SF_A_OUT_PAGES)
			t |= READS;
		if (k != SF_A_STR && k != SF_A_STRV && k != SF_A_IN && k != SF_A_IN_IOV && k != SF_A_IN_MSG)
			t |= WRITES;
	}
	return t;
}

static u32 traits(const struct sf_call *c)
{
	static u8 known[512];
	u64 i = (u64)(c - sf_calls);
	if (i >= sizeof known) /* a row made up from a sub-table */
		return traits_of(c);
	if (unlikely(!known[i]))
		known[i] = (u8)traits_of(c);
	return known[i];
}

void sf_digest_args(struct sf_event *e, const struct sf_call *c, const u64 a[6])
{
	e->outs = traits(c) & WRITES;
	if (sf_alone() || !(traits(c) & READS))
		return;
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		digest_args(e, c, a);
	} else {
		digest_readable(e, c, a);
	}
	me.guard = NULL;
}

/* Walk the out-bytes of a call; `to_log` on the leader, from the log on followers. */
struct carry {
	struct sf_result *out;
	const u8 *in;
	u32 left;
	int short_log;
	int too_much; /* for one result: the kernel has not stored as much */
	int verify, differs; /* the log against memory, and nothing moves */
	u64 stored; /* what carry_stored has gone through */
};

static int differ(const u8 *x, const u8 *y, u64 n)
{
	typedef u64 word __attribute__((may_alias, aligned(1)));
	u64 d = 0;
	for (; n >= 8; n -= 8, x += 8, y += 8)
		d |= *(const word *)x ^ *(const word *)y;
	for (; n; n--)
		d |= *x++ ^ *y++;
	return d != 0;
}

static void move(struct carry *m, u64 at, u64 n)
{
	if (!at || !n)
		return;
	if (n > SF_READ_MAX + SF_PAYLOAD_REST - (m->out ? m->out->out_len : 0)) {
		m->too_much = 1;
	} else if (m->out) {
		sf_result_bytes(m->out, (void *)at, (u32)n);
	} else if (m->left >= n) {
		if (unlikely(m->verify))
			m->differs |= differ((void *)at, m->in, n);
		else
			memcpy((void *)at, m->in, n);
		m->in += n;
		m->left -= (u32)n;
	} else {
		if (m->verify) /* nothing is missing if the leader could not read it: neither can this */
			sf_hash_bytes(&(struct sf_hash){ 0, 0 }, (void *)at, n);
		m->short_log = 1;
	}
}

/* Behind what earlier parts of the call have brought. */
static void move_iov(struct carry *m, const struct iovec *v, u64 n, u64 bytes)
{
	u64 done = app.done_of_call;
	for (u64 i = 0; i < n && bytes; i++) {
		u64 skip = v[i].len < done ? v[i].len : done;
		u64 l = v[i].len - skip < bytes ? v[i].len - skip : bytes;
		move(m, v[i].base + skip, l);
		done -= skip;
		bytes -= l;
	}
}

static void move_message(struct carry *m, u64 at, u32 index, u64 bytes)
{
	struct msghdr *h = (void *)at;
	move(m, at, sizeof *h);
	if (bytes)
		move_iov(m, (void *)h->iov, h->iovlen, bytes);
	move(m, h->name, h->namelen < caps[index].name ? h->namelen : caps[index].name);
	move(m, h->control, h->controllen < caps[index].control ? h->controllen : caps[index].control);
}

/* sendmmsg(2), recvmmsg(2): the length of each message, and what was received. */
static void carry_messages(struct carry *m, const struct sf_call *c, const u64 a[6], s64 ret)
{
	struct mmsghdr *v = (void *)a[1];
	int received = c == &sf_calls[NR_recvmmsg];
	for (s64 i = 0; i < ret && i < MESSAGES_MAX; i++) {
		move(m, (u64)&v[i].len, 4);
		if (received)
			move_message(m, (u64)&v[i].hdr, (u32)i, v[i].len);
	}
	if (received && a[4])
		move(m, a[4], 16); /* the time left */
}

static void carry(struct carry *m, const struct sf_call *c, const u64 a[6], s64 ret)
{
	if (c->handler == SF_H_mmsg) {
		carry_messages(m, c, a, ret);
		return;
	}
	for (int i = 0; i < 6; i++) {
		const struct sf_arg *k = &c->arg[i];
		if (!a[i] || unasked(c, a, i))
			continue;
		int wrote = k->when == SF_W_OK || k->when == SF_W_NAMED ? ret >= 0
			    : k->when == SF_W_POS                       ? ret > 0
			    : k->when == SF_W_EINTR                     ? ret == -EINTR
			    : k->when == SF_W_CAME                      ? ret >= 0 || ret == -EINTR
									: 1;
		switch (k->kind) {
		case SF_A_OUT:
		case SF_A_INOUT:
			if (wrote)
				move(m, a[i], length_args(c, k, a, ret));
			break;
		case SF_A_OUT_IOV:
			if (ret > 0)
				move_iov(m, (void *)a[i], value(c, a, k->len), (u64)ret);
			break;
		case SF_A_OUT_MSG:
			if (wrote) {
				move_message(m, a[i], 0, ret > 0 ? (u64)ret : 0);
			}
			break;
		case SF_A_OUT_ADDR:
			if (wrote && a[k->len]) {
				move(m, a[k->len], 4);
				u32 n = *(u32 *)a[k->len];
				move(m, a[i], n < addr_cap ? n : addr_cap);
			}
			break;
		case SF_A_OUT_PAGES:
			if (wrote)
				move(m, a[i], (value(c, a, k->len) + 4095) / 4096);
			break;
		case SF_A_FDSET:
			if (wrote)
				move(m, a[i], fdset_bytes(a[i], value(c, a, k->len)));
			break;
		case SF_A_IFCONF:
			if (wrote) {
				const struct ifconf *f = (void *)a[i];
				move(m, a[i], sizeof f->len);
				move(m, f->at, f->len > 0 ? (u64)f->len : 0);
			}
			break;
		}
	}
}

/* Has the kernel given up where it could not write, and may it have stored something before? The address of a sender
 * comes after the bytes, and its length may be negative. */
static int gave_up(const struct sf_call *c, const u64 a[6], s64 ret)
{
	return ret == -EFAULT || (ret == -EINVAL && c == &sf_calls[45] /* recvfrom */ && a[4]);
}

static int move_piece(struct carry *m, u64 at, u64 n)
{
	volatile int moved = 0;
	if (sf_guard_enter(&me.guard_store) == 0) {
		volatile u8 *first = (volatile u8 *)at;
		me.guard = &me.guard_store;
		*first = *first; /* only what may be written has been stored to */
		move(m, at, n);
		moved = 1;
	}
	me.guard = NULL;
	return moved;
}

/* 0: this is where the kernel has stopped, if it came so far. */
static int move_stored(struct carry *m, u64 at, u64 n)
{
	for (u64 l; n; at += l, n -= l) {
		l = in_page(at, n);
		m->stored += l;
		if (m->stored > SF_READ_MAX || !move_piece(m, at, l))
			return 0;
	}
	return 1;
}

static void move_stored_iov(struct carry *m, u64 at, u64 n)
{
	struct iovec v;
	for (u64 i = 0; i < n && i < 1024; i++)
		if (sf_user_bytes(&v, at + i * sizeof v, sizeof v) < 0 || !move_stored(m, v.base, v.len))
			return;
}

static void move_stored_message(struct carry *m, u64 at)
{
	struct msghdr h;
	if (!move_stored(m, at, sizeof h) || sf_user_bytes(&h, at, sizeof h) < 0)
		return;
	move_stored_iov(m, h.iov, h.iovlen);
	move_stored(m, h.name, caps[0].name);
	move_stored(m, h.control, caps[0].control);
}

static void move_stored_ifconf(struct carry *m, u64 at)
{
	struct ifconf f;
	if (move_stored(m, at, sizeof f.len) && sf_user_bytes(&f, at, sizeof f) == 0 && f.len > 0)
		move_stored(m, f.at, (u64)f.len);
}

/* Nobody says how far the kernel came: everything that it may have stored is carried. A fault here is where it came no further, and
 * no reason for the leader to begin the event again (begins_again): what its arguments point to is no longer what it claimed. */
static void carry_stored(struct carry *m, const struct sf_call *c, const u64 a[6])
{
	const u64 retried = me.retried;
	me.retried = me.next;
	if (c == &sf_calls[299] /* recvmmsg: of the first message, or it would not have failed */)
		move_stored_message(m, a[1]);
	for (int i = 0; i < 6; i++) {
		const struct sf_arg *k = &c->arg[i];
		if (!a[i] || unasked(c, a, i) || c->handler == SF_H_mmsg)
			continue;
		switch (k->kind) {
		case SF_A_OUT:
		case SF_A_INOUT: move_stored(m, a[i], length_args(c, k, a, k->len == SF_L_RET ? 0x7ffff000 : 0)); break;
		case SF_A_OUT_IOV: move_stored_iov(m, a[i], value(c, a, k->len)); break;
		case SF_A_OUT_MSG: move_stored_message(m, a[i]); break;
		case SF_A_OUT_ADDR: move_stored(m, a[i], addr_cap); break;
		case SF_A_OUT_PAGES: move_stored(m, a[i], (value(c, a, k->len) + 4095) / 4096); break;
		case SF_A_FDSET: move_stored(m, a[i], fdset_bytes(a[i], value(c, a, k->len))); break;
		case SF_A_IFCONF: move_stored_ifconf(m, a[i]); break;
		}
	}
	me.retried = retried;
}

/* What sf_collect has been told last, and the event that it went through the arguments of. */
static struct {
	u64 seq_inv, carried;
	s64 ret;
} collected;

static void carry_all(struct carry *m, const struct sf_call *c, const u64 a[6], s64 ret)
{
	const struct carry start = *m;
	const u32 had = m->out ? m->out->out_len : 0;
	volatile int whole = 0;
	if (likely(!gave_up(c, a, ret)) && sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		carry(m, c, a, ret);
		whole = !m->too_much && (m->out || !m->short_log);
	}
	me.guard = NULL;
	if (m->out)
		collected.carried = m->out->seq_inv;
	if (likely(whole))
		return;
	/* What the arguments name is not all there, or too much: the kernel has refused (mincore(2)). */
	*m = start;
	if (m->out)
		m->out->out_len = had;
	carry_stored(m, c, a);
}

void sf_collect(struct sf_result *r, const struct sf_call *c, const u64 a[6], s64 ret)
{
	collected.seq_inv = r->seq_inv;
	collected.ret = ret;
	struct carry m = { .out = r };
	if (sf_alone() || !(traits(c) & WRITES))
		return;
	carry_all(&m, c, a, ret);
}

/* 1: the log holds what memory holds, and nobody left the copying out. Memory that cannot be read
 * is its owner's own fault. */
int sf_collected(const struct sf_result *r, const struct sf_call *c, const u64 a[6])
{
	struct carry m = { .in = PAYLOAD + r->out_off, .left = r->out_len, .verify = 1 };
	if (!(traits(c) & WRITES) || collected.seq_inv != r->seq_inv || sf_alone())
		return 1;
	if (collected.carried != r->seq_inv)
		return 0;
	if (!r->out_len)
		return 1;
	carry_all(&m, c, a, collected.ret);
	return !(m.differs | m.short_log);
}

/* 1: memory holds what the log holds, but for `behind` bytes at its end, which the call has not brought. */
int sf_matches(const struct sf_result *r, const struct sf_call *c, const u64 a[6], s64 ret, u32 behind)
{
	struct carry m = { .in = PAYLOAD + r->out_off, .left = r->out_len - behind, .verify = 1 };
	if (!(traits(c) & WRITES))
		return 1;
	carry_all(&m, c, a, ret);
	return !(m.differs | m.short_log);
}

void sf_scatter(const struct sf_result *r, const struct sf_call *c, const u64 a[6], s64 ret)
{
	if (!(traits(c) & WRITES))
		return;
	struct carry m = { .in = PAYLOAD + r->out_off, .left = r->out_len };
	carry_all(&m, c, a, ret);
	/* A log shorter than the row demands means that this replica's arguments changed
	 * after the vote; the next event will differ and be voted on. */
}

/* Copy bytes of the program; negative when they are unreadable. */
s64 sf_user_bytes(void *to, u64 from, u64 n)
{
	volatile s64 ok = -1;
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		memcpy(to, (void *)from, n);
		ok = 0;
	}
	me.guard = NULL;
	return ok;
}

/* Copy a string of the program; its length, or negative when it is unreadable or too long. */
s64 sf_user_string(char *to, u64 from, u32 room)
{
	volatile s64 n = -1;
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		u32 i = 0;
		while (i < room && (to[i] = ((const char *)from)[i]))
			i++;
		n = i < room ? (s64)i : -1;
	}
	me.guard = NULL;
	return n;
}

/* Where a message stands that a call sends, or 0 behind the last of them (sendmsg(2), sendmmsg(2)). */
u64 sf_message_sent(u32 nr, const u64 a[6], u32 i)
{
	if (nr == NR_sendmmsg && i < messages(a))
		return a[1] + i * sizeof(struct mmsghdr);
	return nr == NR_sendmsg && !i ? a[1] : 0;
}

/* The descriptors that a message of the program carries (cmsg(3)). Their number; 0, if there are more than `room`. */
u32 sf_message_rights(u64 at, s32 *fd, u32 room)
{
	struct msghdr m;
	struct {
		u64 len;
		u32 level, type;
	} head;
	u32 all = 0;
	if (sf_user_bytes(&m, at, sizeof m) < 0 || !m.control)
		return 0;
	for (u64 to = 0; to + sizeof head <= m.controllen; to += (head.len + 7) & ~7ull) {
		if (sf_user_bytes(&head, (u64)m.control + to, sizeof head) < 0 || head.len < sizeof head || head.len > m.controllen - to)
			return 0;
		if (head.level != 1 /* SOL_SOCKET */ || head.type != 1 /* SCM_RIGHTS */)
			continue;
		const u64 n = (head.len - sizeof head) / 4;
		if (n > room - all || sf_user_bytes(fd + all, (u64)m.control + to + sizeof head, n * 4) < 0)
			return 0;
		all += (u32)n;
	}
	return all;
}
