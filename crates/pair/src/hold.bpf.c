/*
 * What a client is told to have arrived: not more than the other site has heard of (hold.rs).
 *
 * At the egress of the device, of packets from the address of the pair. An acknowledgement that says too much says less:
 * number, window and checksum are put right, and everything else of the packet leaves at once. Of a connection that the
 * program has not accepted yet nothing is acknowledged behind the SYN.
 *
 * Only helpers that are open to any licence. See bpf-helpers(7), RFC 9293.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;

/* Replaced by the maps' descriptors when this is loaded (crates/sys/src/bpf.rs). */
#define MAP(i) ((void *)(0x6d61700000000000ull + ((u64)(i) << 32)))
#define RULE MAP(0)
#define LIMITS MAP(1)
#define SEEN MAP(2)

enum { PASS = 0, DROP = 2 };
enum { ETHERNET = 14, TCP = 6, FIN = 1, SYN = 2, RST = 4, ACK = 16, IPV4 = 0x0800, IPV6 = 0x86dd };
/* A third one has a sender without SACK send again (RFC 5681, 3.2). */
enum { REPEATS_MAX = 2 };
/* A header with a time stamp, and nothing else. */
enum { HEAD = 32 };
enum { NO_SCALE = 31 };

struct skb {
	u32 len;
}; /* struct __sk_buff begins so */
struct ip {
	u8 version, tos;
	u16 total, id, fragment;
	u8 ttl, protocol;
	u16 sum;
	u32 from, to;
};
struct ip6 {
	u32 flow;
	u16 length;
	u8 protocol, hops;
	u32 from[4], to[4];
};
struct tcp {
	u16 from, to;
	u32 seq, ack;
	u8 length, flags;
	u16 window, sum, urgent;
};

/* As on the wire, an address of IPv4 as a mapped one; hold.rs, `key`. */
struct key {
	u32 own[4], peer[4];
	u16 own_port, peer_port;
};
struct rule {
	u32 address[4], on;
};       /* hold.rs, `rule` */
struct limit {
	u32 ack, scale, free;
};    /* hold.rs, `limit` */
struct seen {         /* hold.rs, `Seen` */
	u32 birth;            /* behind the SYN */
	u32 said, acked;      /* what the client was told, and what the kernel would have told it */
	u32 next;             /* behind the last byte that was sent */
	u32 window, repeats;
	u8 head[HEAD];        /* the last header */
};
_Static_assert(sizeof(struct key) == 36 && sizeof(struct rule) == 20 && sizeof(struct limit) == 12 && sizeof(struct seen) == 56, "hold.rs");

static void *(*const look)(void *, const void *) = (void *)1;
static long (*const update)(void *, const void *, const void *, u64) = (void *)2;
static long (*const forget)(void *, const void *) = (void *)3;
static long (*const store)(struct skb *, u32, const void *, u32, u64) = (void *)9;
static long (*const sum_replace)(struct skb *, u32, u64, u64, u64) = (void *)11;
static long (*const load)(const struct skb *, u32, void *, u32) = (void *)26;

#define swap16 __builtin_bswap16
#define swap32 __builtin_bswap32

static int after(u32 a, u32 b)
{
	return (s32)(a - b) > 0;
}

/* Says `limit` in place of `ack`, with a window that ends where it ended. */
static __attribute__((always_inline)) int clamp(struct skb *skb, u32 at, const struct tcp *t, u32 limit, u32 scale)
{
	u32 own = limit, wide = swap16(t->window) + ((swap32(t->ack) - limit) >> (scale & 31));
	u16 window = swap16(wide > 0xffff ? 0xffff : (u16)wide);
	own = swap32(own);
	if (sum_replace(skb, at + 16, t->ack, own, 4) < 0 || store(skb, at + 8, &own, 4, 0) < 0 ||
	    sum_replace(skb, at + 16, t->window, window, 2) < 0 || store(skb, at + 14, &window, 2, 0) < 0)
		return DROP;
	return PASS;
}

static __attribute__((always_inline)) void remember(struct skb *skb, u32 at, const struct tcp *t, struct seen *s)
{
	u32 ack = swap32(t->ack), header = (u32)(t->length >> 4) * 4;
	u32 next = swap32(t->seq) + skb->len - at - header + !!(t->flags & FIN);
	if (load(skb, at, s->head, HEAD) < 0)
		load(skb, at, s->head, sizeof *t);
	if (after(next, s->next))
		s->next = next;
	if (!after(s->acked, ack)) {
		s->acked = ack;
		s->window = swap16(t->window);
	}
}

static __attribute__((always_inline)) struct seen *begin(const struct key *key, const struct tcp *t)
{
	u32 ack = swap32(t->ack);
	struct seen fresh = { .birth = ack, .said = ack, .acked = ack, .next = swap32(t->seq) };
	update(SEEN, key, &fresh, 0);
	return look(SEEN, key);
}

/* Where a segment of TCP begins, and whose it is; 0: it is something else. The kernel's own segments by IPv6 have no header between. */
static __attribute__((always_inline)) u32 find(struct skb *skb, struct key *key)
{
	u16 kind;
	if (load(skb, 12, &kind, 2) < 0)
		return 0;
	if (kind == swap16(IPV4)) {
		struct ip ip;
		if (load(skb, ETHERNET, &ip, sizeof ip) < 0 || ip.protocol != TCP)
			return 0;
		key->own[2] = key->peer[2] = swap32(0xffff);
		key->own[3] = ip.from;
		key->peer[3] = ip.to;
		return ETHERNET + (ip.version & 15u) * 4;
	}
	struct ip6 ip;
	if (kind != swap16(IPV6) || load(skb, ETHERNET, &ip, sizeof ip) < 0 || ip.protocol != TCP)
		return 0;
	__builtin_memcpy(key->own, ip.from, sizeof ip.from);
	__builtin_memcpy(key->peer, ip.to, sizeof ip.to);
	return ETHERNET + sizeof ip;
}

__attribute__((section("egress"))) int hold(struct skb *skb)
{
	struct key key = { { 0 }, { 0 }, 0, 0 };
	struct tcp t;
	u32 first = 0;
	const struct rule *rule = look(RULE, &first);
	u32 at = rule ? find(skb, &key) : 0;
	if (!at || key.own[0] != rule->address[0] || key.own[1] != rule->address[1] || key.own[2] != rule->address[2] ||
	    key.own[3] != rule->address[3])
		return PASS;
	if (load(skb, at, &t, sizeof t) < 0 || !(t.flags & ACK))
		return PASS;
	key.own_port = t.from;
	key.peer_port = t.to;
	if (t.flags & SYN) {
		forget(LIMITS, &key); /* of an earlier connection of the same ports */
		begin(&key, &t);
		return PASS;
	}
	if (t.flags & RST)
		return PASS;
	const struct limit *known = look(LIMITS, &key);
	struct seen *s = look(SEEN, &key);
	if (known && !s)
		s = begin(&key, &t);
	if (!s)
		return PASS;
	remember(skb, at, &t, s);
	u32 ack = swap32(t.ack), limit = known ? known->ack : s->birth;
	if (!rule->on || (known && known->free) || !after(ack, limit)) {
		s->said = ack;
		s->repeats = 0;
		return PASS;
	}
	u32 header = (u32)(t.length >> 4) * 4;
	int says_nothing = skb->len == at + header && header <= HEAD && !(t.flags & FIN);
	if (s->said != limit)
		s->repeats = 0;
	else if (says_nothing && ++s->repeats > REPEATS_MAX)
		return DROP;
	s->said = limit;
	return clamp(skb, at, &t, limit, known ? known->scale : NO_SCALE);
}
