/* Log: where replicas meet before an effect leaves the group.
 *
 * Every replica publishes its claim (what it is about to do) in its own ring. Before an
 * effect all wait for all, and each compares every other claim with its own: there is
 * no single voter. The leader then acts and publishes a result; followers copy it. For a
 * query the leader does not wait: followers compare with its claim when they get there.
 *
 * Invariants
 *  1. No byte leaves the group before every live replica has arrived at the event and all
 *     claims are equal; sf_call_agreed() compares once more as it makes the call.
 *  2. A replica that sees a difference raises the alarm and pauses; it never decides alone.
 *  3. Waiting costs no processor for long: spin, then sleep on the slot's bell.
 *  4. A leader that has waited for others acts on what it holds then only if that is still its claim.
 *
 * Not covered: bytes that change between that look and the kernel's copy (measured in
 * docs/specification.md).
 * See futex(2); Döbel and Härtig 2013, Section 1.
 */
#include "agent.h"

#include <asm/errno.h>

#define SYS_futex 202
#define SYS_sched_yield 24

/* A sleeper looks at its condition again this often even if nobody rings: bounds the cost
 * of a lost ring, which the fence below already makes all but impossible. Longer than the tenth of a second for which many
 * servers sleep: a wake for nothing costs some 100 µs. */
static const s64 sleep_limit[2] = { 0, 150 * 1000 * 1000 };
/* Where nobody has rung for a second or so nobody is in a hurry. */
static const s64 rest_limit[2] = { 1, 0 };
#define RESTS_AFTER 8 /* sleeps */

static u32 claim_crc(const struct sf_claim_record *a)
{
	u64 c = 0;
	const u64 *w = (const u64 *)a;
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(w[0]));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(w[2]));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"((u64)a->slot));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(w[4]));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(w[5]));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(w[6]));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(w[7]));
	return (u32)c;
}

static int claim_valid(const struct sf_claim_record *a, u64 seq, u32 slot)
{
	return a->seq_inv == ~seq && a->slot == slot && a->crc == claim_crc(a);
}

static u32 result_crc(const struct sf_result *r)
{
	u64 c = 0;
	const u64 *w = (const u64 *)r;
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(w[0]));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(w[2]));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(w[3]));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(w[4]));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(w[5]));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"((u64)r->payload_crc));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(w[7]));
	return (u32)c;
}

static void ring_launcher(void)
{
	__atomic_fetch_add(&G->launcher_bell, 1, __ATOMIC_SEQ_CST);
	sys3(SYS_futex, &G->launcher_bell, FUTEX_WAKE, 1);
}

static COLD void end_rest(void)
{
	if (__atomic_fetch_and(&G->sleepers, ~SF_LAUNCHER_RESTS, __ATOMIC_SEQ_CST) & SF_LAUNCHER_RESTS)
		ring_launcher();
}

static void ring(u32 slots)
{
	u32 asleep = load(&G->sleepers) & (slots | SF_LAUNCHER_RESTS) & ~(1u << me.slot);
	if (unlikely(asleep & SF_LAUNCHER_RESTS))
		end_rest();
	asleep &= slots;
	while (unlikely(asleep)) {
		u32 s = __builtin_ctz(asleep);
		asleep &= asleep - 1;
		me.waited = 1; /* who is woken may take this replica's processor */
		sf_wake(s);
	}
}

void sf_wake(u32 slot)
{
	__atomic_fetch_add(&G->slot[slot].bell, 1, __ATOMIC_SEQ_CST);
	sys3(SYS_futex, &G->slot[slot].bell, FUTEX_WAKE, 1);
}

/* Must this replica stop at event seq? It first has to reach the event in dispute. */
INLINE int alarmed(u64 seq)
{
	return unlikely(load(&G->alarm) != SF_A_QUIET) && seq >= G->alarm_seq;
}

/* Wait until *word has the value (or, for counters, has reached it). 0: alarm instead. The
 * owner of a record that has gone on without the word having its value will not write it
 * again: it is damaged (SF_W_RECORD). */
enum sf_wait { SF_W_RECORD, SF_W_REACHED };

INLINE int holds(const u64 *word, u64 want, enum sf_wait how)
{
	u64 v = load(word);
	return how == SF_W_RECORD ? v == want : v >= want;
}

/* What a replica has published stands before its place in the order of stores. */
static int lost_log(const u64 *word, u64 want, enum sf_wait how, u32 owner)
{
	u64 place = load(&G->slot[owner].next);
	return how == SF_W_RECORD && place > want && !holds(word, want, how);
}

static COLD int wait_slow(const u64 *word, u64 want, enum sf_wait how, u32 owner, u64 seq)
{
	struct sf_replica *own = &G->slot[me.slot];
	me.waited = 1;
	/* A partner on a core of its own is a few hundred cycles away, and pause alone takes fifty
	 * of them on some processors. */
	for (int i = 0; i < 256; i++)
		if (holds(word, want, how))
			return 1;
	u64 start = sf_tsc();
	u32 yields = G->yields, sleeps = 0;
	for (;;) {
		do {
			if (holds(word, want, how))
				return 1;
			if (alarmed(seq))
				return 0;
			__builtin_ia32_pause();
		} while (sf_tsc() - start < G->spin_tsc);
		if (lost_log(word, want, how, owner)) {
			sf_raise(SF_A_LOG, seq);
			return 0;
		}
		if (yields) {
			yields--;
			sys0(SYS_sched_yield);
			continue;
		}
		u32 bell = load(&own->bell);
		__atomic_fetch_or(&G->sleepers, 1u << me.slot, __ATOMIC_SEQ_CST);
		/* A publisher stores its record and then reads sleepers; both may still sit in
		 * its store buffer order. 64 looks are far longer than a store buffer drains. */
		int ok = 0;
		for (int i = 0; i < 64 && !ok; i++) {
			ok = holds(word, want, how) || alarmed(seq);
			__builtin_ia32_pause();
		}
		if (!ok) {
			own->sleeping = 1;
			sys4(SYS_futex, &own->bell, FUTEX_WAIT, bell, sleeps++ < RESTS_AFTER ? sleep_limit : rest_limit);
			own->sleeping = 0;
		}
		__atomic_fetch_and(&G->sleepers, ~(1u << me.slot), __ATOMIC_SEQ_CST);
		/* Of a replica that does not live nothing will come: the word that named it was struck, and the launcher has
		 * set it right meanwhile. */
		if (unlikely(!(load(&G->live) >> owner & 1)) && !holds(word, want, how)) {
			sf_raise(SF_A_LOG, seq);
			return 0;
		}
	}
}

INLINE int wait_for(const u64 *word, u64 want, enum sf_wait how, u32 owner, u64 seq)
{
	if (likely(holds(word, want, how)))
		return 1;
	return wait_slow(word, want, how, owner, seq);
}

/* Keys of the digest below: digits of pi, so nobody chose them. */
#define K0 0x243f6a8885a308d3ull
#define K1 0x13198a2e03707344ull
#define K2 0xa4093822299f31d0ull
#define K3 0x082efa98ec4e6c89ull
#define K4 0x452821e638d01377ull
#define K5 0xbe5466cf34e90c6cull
#define K6 0xc0ac29b7c97c50ddull
#define K7 0x3f84d5b5b5470917ull

/* A sum of products of keyed pairs (the NH of UMAC, RFC 4418): no product waits for another. */
#define TWO(x, kx, y, ky) ((__uint128_t)((x) + (kx)) * ((y) + (ky)))

INLINE u64 fold(__uint128_t v)
{
	return (u64)v ^ sf_mix((u64)(v >> 64), K0);
}

/* The digest of what a replica is about to do, beyond the bytes: number, arguments,
 * callee-saved registers, stack pointer, resume address, the top of its stack, and which thread it is. */
INLINE void digest_state(struct sf_event *e, const struct sf_regs *r, u64 *regs_only)
{
	u64 t[8];
	__builtin_memcpy(t, (const u64 *)r->rsp, 64);
	__uint128_t regs =
		TWO(r->rbx, K0, r->rbp, K1) + TWO(r->r12, K2, r->r13, K3) + TWO(r->r14, K4, r->r15, K5) + TWO(r->rsp, K6, r->rip, K7);
	__uint128_t stack = TWO(t[0], K1, t[1], K2) + TWO(t[2], K3, t[3], K4) + TWO(t[4], K5, t[5], K6) + TWO(t[6], K7, t[7], K0);
	__uint128_t call = TWO(e->args[0], K2, e->args[1], K5) + TWO(e->args[2], K3, e->args[3], K6) + TWO(e->args[4], K4, e->args[5], K7) +
			   TWO((u64)e->kind << 32 | e->nr, K0, app.current, K3);
	*regs_only = fold(regs) + fold(stack);
	e->state = sf_mix(fold(call), *regs_only);
}

/* The end of a stack is nearer than 64 bytes, or it cannot be read at all: equal in all replicas, or a fault in one. */
static COLD void digest_without_stack(struct sf_event *e, const struct sf_regs *r)
{
	const u64 kept[] = { r->rbx, r->rbp, r->r12, r->r13, r->r14, r->r15, r->rsp, r->rip };
	u64 end = (r->rsp | 4095) + 1, top = 0;
	struct sf_hash h = { (u64)e->kind << 32 | e->nr, app.current };
	sf_hash_bytes(&h, kept, sizeof kept);
	for (u64 at = r->rsp; end - r->rsp < 64 && at + 8 <= end && sf_user_bytes(&top, at, 8) == 0; at += 8)
		sf_hash_bytes(&h, &top, 8);
	me.regs_digest = h.a ^ h.b;
	sf_hash_bytes(&h, e->args, sizeof e->args);
	e->state = sf_mix(h.a, h.b);
}

static COLD void digest_guarded(struct sf_event *e, const struct sf_regs *r)
{
	if (sf_guard_enter(&me.guard_store) == 0) {
		me.guard = &me.guard_store;
		digest_state(e, r, &me.regs_digest);
		/* Until mappings change (memory.c) what has been read once needs no guard. */
		me.stack_from = r->rsp & ~4095ull;
		me.stack_to = ((r->rsp + 63) & ~4095ull) + 4096;
	} else {
		digest_without_stack(e, r);
	}
	me.guard = NULL;
}

INLINE void digest_place(struct sf_event *e, const struct sf_regs *r)
{
	if (likely(r->rsp >= me.stack_from && r->rsp + 64 <= me.stack_to))
		digest_state(e, r, &me.regs_digest);
	else
		digest_guarded(e, r);
}

static void claim_log(struct sf_event *e, const struct sf_regs *r)
{
	const u64 seq = e->seq;
	struct sf_claim_record *a = CLAIM(me.slot, seq);
	if (sf_alone()) {
		G->slot[0].next = e->seq;
		return;
	}
	digest_place(e, r);
	if (unlikely(me.poison)) {
		e->state = ~e->state ^ (me.poison & SF_SPOILED_ALONE ? me.slot : 0);
		me.poison = 0;
	}

	/* The lines written next are in another core's cache by now: ask for them early. Four
	 * events are a few hundred nanoseconds. */
	if (me.slot == 0) {
		__builtin_prefetch(CLAIM(0, seq + 4), 1);
		__builtin_prefetch((const u8 *)CLAIM(0, seq + 4) + 64, 1);
		__builtin_prefetch(RESULT(seq + 4 - me.base), 1);
	}
	store(&a->seq, ~0ull); /* no reader takes the slot while it is rewritten */
	a->seq_inv = ~e->seq;
	a->nr = e->nr;
	a->kind = e->kind;
	a->thread = (u16)app.current;
	a->slot = me.slot;
	a->ip = r->rip;
	a->state = e->state;
	a->bytes[0] = e->bytes.a;
	a->bytes[1] = e->bytes.b;
	for (int i = 0; i < 6; i++)
		a->args[i] = e->args[i];
	a->sp = r->rsp;
	a->regs = me.regs_digest;
	u64 c = 0; /* as claim_crc(), with the seq that is not stored yet */
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(seq));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(((const u64 *)a)[2]));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"((u64)a->slot));
	for (int i = 4; i < 8; i++)
		__asm__("crc32q %1, %0" : "+r"(c) : "r"(((const u64 *)a)[i]));
	a->crc = (u32)c;
	SF_FLIP_POINT(seq, flip_claim, SF_T_CLAIM);
	store(&a->seq, seq);
	G->slot[me.slot].next = seq;
	ring(G->live);
}

void sf_arrive(struct sf_event *e, const struct sf_regs *r)
{
	claim_log(e, r);
}

static int same(const struct sf_claim_record *o, const struct sf_event *e, u64 ip)
{
	return ((o->state ^ e->state) | (o->bytes[0] ^ e->bytes.a) | (o->bytes[1] ^ e->bytes.b) | (o->ip ^ ip) | (o->nr ^ e->nr) |
		(u64)(o->kind ^ e->kind) | (u64)(o->thread ^ (u16)app.current)) == 0;
}

/* The others have agreed to what the leader held when it arrived, and the kernel takes what it holds now: whatever struck it
 * while it waited for them. If that is something else it becomes the leader's claim, with which it loses. 0: pause. */
int sf_claim_stands(const struct sf_event *e, struct sf_event *now, const struct sf_regs *r)
{
	digest_place(now, r);
	if (likely(((now->state ^ e->state) | (now->bytes.a ^ e->bytes.a) | (now->bytes.b ^ e->bytes.b)) == 0))
		return 1;
	sf_raise(SF_A_DIVERGED, e->seq); /* first: who reads the claim while it is written anew would take it for damaged */
	claim_log(now, r);
	return 0;
}

/* In a domain all replicas have their turn until the leader has found that its claim stands, and then none: a fault that is found
 * here is found where what they share is of one moment (domain.c). 0: pause. */
int sf_is_meant(const struct sf_event *e)
{
	if (me.slot != 0) /* the leader of another host says so by its log alone */
		return (G->options & SF_O_PAIR) || wait_for(&G->meant, e->seq, SF_W_REACHED, 0, e->seq);
	store(&G->meant, e->seq);
	ring(G->live);
	return 1;
}

/* A snapshot that runs again has the retained log for its peers. */
static enum sf_rendezvous rendezvous_log(struct sf_event *e)
{
	if (e->seq >= G->rerun_until)
		return SF_RESTART;
	const struct sf_result *r = RESULT(e->seq - me.base);
	if (r->seq != e->seq || r->agreed != (e->state ^ e->bytes.a)) {
		G->slot[me.slot].verdict_seq = e->seq;
		return SF_RESTART;
	}
	return SF_AGREED;
}

/* The leader's claim is damaged, but not what the leader knows: it compares before it acts, and
 * the result says on what. To blame it now would have the call made twice. A leader that
 * claims something else raises the alarm itself. */
static COLD int leader_acts_log(struct sf_event *e)
{
	const struct sf_result *r = RESULT(e->seq - me.base);
	if (!wait_for(&r->seq, e->seq, SF_W_RECORD, 0, e->seq))
		return 0;
	return r->seq_inv == ~e->seq && r->crc == result_crc(r) && r->agreed == (e->state ^ e->bytes.a);
}

enum sf_rendezvous sf_rendezvous_all(struct sf_event *e)
{
	if (unlikely(me.role == SF_RERUN))
		return rendezvous_log(e);
	u32 others = G->live & ~(1u << me.slot);
	const u64 ip = CLAIM(me.slot, e->seq)->ip;
	me.queries = 0;
	while (others) {
		u32 s = __builtin_ctz(others);
		others &= others - 1;
		const struct sf_claim_record *o = CLAIM(s, e->seq);
		if (!wait_for(&o->seq, e->seq, SF_W_RECORD, s, e->seq))
			return SF_RESTART;
		if (unlikely(!claim_valid(o, e->seq, s))) {
			if (s == 0 && leader_acts_log(e))
				continue;
			sf_raise(SF_A_LOG, e->seq);
			return SF_RESTART;
		}
		if (unlikely(!same(o, e, ip))) {
			sf_raise(SF_A_DIVERGED, e->seq);
			return SF_RESTART;
		}
	}
	/* A leader that has acted may be gone by now: what it did is in the log, and whoever of the
	 * others leads next may have read it. */
	if (alarmed(e->seq) && (me.slot == 0 || (RESULT(e->seq - me.base)->seq != e->seq && !(app.domain && load(&G->meant) >= e->seq))))
		return SF_RESTART;
	return SF_AGREED;
}

/* A follower that has caught up in a row of queries lets the leader get ahead before it looks again:
 * each look at a line that the leader is about to write takes it away, and the leader fetches it
 * back. What such a look finds is then several events, read at the speed of the cache. Where
 * queries and effects alternate the leader would wait for it: there it looks all the time. */
#define LAG_TICKS 2048 /* some five to ten events of a leader that waits for nobody */
#define LAG_LOOKS 4    /* then the leader is doing something longer: wait for its claim */
#define LAG_AFTER 16   /* queries without an effect between them */

/* The result of a query says on which claim the leader acted: one line that is read anyway, instead
 * of two. 0: not there, or not what this replica claims; the claim tells more. */
static int leader_acted(const struct sf_event *e)
{
	const struct sf_result *r = RESULT(e->seq - me.base);
	int looks = me.queries < LAG_AFTER ? 0 : LAG_LOOKS;
	me.queries++;
	for (;; looks--) {
		if (likely(load(&r->seq) == e->seq))
			return r->seq_inv == ~e->seq && r->nr == e->nr && r->agreed == (e->state ^ e->bytes.a);
		if (looks <= 0)
			return 0;
		u64 start = sf_tsc();
		do
			__builtin_ia32_pause();
		while (sf_tsc() - start < LAG_TICKS);
	}
}

enum sf_rendezvous sf_rendezvous_leader(struct sf_event *e)
{
	if (me.slot == 0)
		return alarmed(e->seq) ? SF_RESTART : SF_AGREED;
	if (unlikely(me.role == SF_RERUN))
		return rendezvous_log(e);
	if (likely(leader_acted(e)))
		return SF_AGREED;
	const struct sf_claim_record *o = CLAIM(0, e->seq);
	/* The leader may have lapped this slot of its ring only if this replica is done with
	 * it, so the record asked for is there or still to come. */
	if (!wait_for(&o->seq, e->seq, SF_W_RECORD, 0, e->seq))
		return SF_RESTART;
	if (unlikely(!claim_valid(o, e->seq, 0))) {
		if (leader_acts_log(e))
			return SF_AGREED;
		sf_raise(SF_A_LOG, e->seq);
		return SF_RESTART;
	}
	if (unlikely(!same(o, e, CLAIM(me.slot, e->seq)->ip))) {
		sf_raise(SF_A_DIVERGED, e->seq);
		return SF_RESTART;
	}
	return SF_AGREED;
}

/* The one way an agreed call reaches the kernel: the token that opens the gate is made
 * from another replica's claim, the one that the gate expects from this replica's. */
s64 sf_call_agreed(const struct sf_event *e, const u64 call[7])
{
	if (sf_alone()) {
		tls.token = ~tls.secret;
		return sf_gate(call, ~tls.secret);
	}
	/* Once for an event, even if a fault leads this way again. */
	if (unlikely(me.made == e->seq))
		return me.made_ret;
	u32 others = G->live & ~(1u << me.slot);
	u32 peer = others && e->lockstep && me.role != SF_RERUN ? (u32)__builtin_ctz(others) : me.slot;
	const struct sf_claim_record *o = CLAIM(peer, e->seq);
	tls.token = sf_mix(e->state, e->bytes.a) ^ tls.secret;
	s64 r = sf_gate(call, sf_mix(o->state, o->bytes[0]) ^ tls.secret);
	if (likely(r != -EINTR && r != SF_NOT_MADE)) {
		me.made_ret = r;
		me.made = e->seq;
		if (me.slot == 0 && e->lockstep) {
			G->slot[0].made_ret = r;
			store(&G->slot[0].made, e->seq | (e->outs ? SF_MADE_OUT : 0));
		}
	}
	return r;
}

/* Every follower has consumed all events below seq. */
static int followers_at(u64 seq, u64 now)
{
	for (u32 s = 1; s < me.replicas; s++)
		if (!wait_for(&G->slot[s].done, seq, SF_W_REACHED, s, now))
			return 0;
	return 1;
}

int sf_followers_at(u64 seq, u64 now)
{
	return followers_at(seq, now);
}

/* Leader, before it writes record seq: make sure that nobody still reads what this
 * overwrites. 0: alarm. */
static u64 low = 1; /* all followers are known to have consumed events below this */

/* In a copy of a replica, whose group has a log of its own. */
void sf_log_anew(void)
{
	low = 1;
}

int sf_log_room(u64 seq)
{
	if (unlikely(seq - low >= SF_RING - 1)) {
		u64 want = seq > SF_RING ? seq - SF_RING / 2 : 1;
		if (!followers_at(want, seq))
			return 0;
		low = want;
	}
	if (unlikely(me.reset_pending)) {
		if (!followers_at(seq, seq))
			return 0;
		me.base = seq;
		G->base = seq;
		me.out = 0;
		me.reset_pending = 0;
	}
	return 1;
}

struct sf_result *sf_result_begin(struct sf_event *e, s64 ret)
{
	struct sf_result *r = RESULT(e->seq - me.base);
	store(&r->seq, ~0ull);
	r->seq_inv = ~e->seq;
	r->ret = ret;
	r->agreed = e->state ^ e->bytes.a;
	r->out_off = me.out;
	r->out_len = 0;
	r->nr = e->nr;
	r->flags = 0;
	r->spare = 0;
	r->aux = 0;
	return r;
}

/* There is room: calls bring SF_READ_MAX at most, and sf_result_end_of leaves that for the next one. */
void sf_result_bytes(struct sf_result *r, const void *p, u32 len)
{
	ASSERT((u64)r->out_off + r->out_len + len <= SF_PAYLOAD_BYTES);
	memcpy(PAYLOAD + r->out_off + r->out_len, p, len);
	r->out_len += len;
}

void sf_result_end(struct sf_result *r)
{
	sf_result_end_of(r, NULL, NULL);
}

/* With the call whose bytes it carries: what the kernel has given to the leader exists once.
 * Copied and summed, it is compared with where it came from; if the two differ then one of them
 * went wrong since, nobody can say which, and the group stops before anyone uses either. */
void sf_result_end_of(struct sf_result *r, const struct sf_call *call, const u64 a[6])
{
	u64 seq = ~r->seq_inv;
	if (sf_alone()) {
		me.base = seq + 1; /* nobody reads it: the next one may take its place */
		me.out = 0;
		return;
	}
	me.out += (r->out_len + 63) & ~63u;
	if (unlikely(me.out > SF_PAYLOAD_SOFT || seq - me.base > SF_RESULTS_SOFT)) {
		if (!(G->options & SF_O_RETAIN) || app.domain) {
			r->flags |= SF_R_RESET;
			me.reset_pending = 1;
		} else if (me.out > SF_PAYLOAD_BYTES - SF_READ_MAX - SF_PAYLOAD_REST || seq - me.base > SF_RESULTS_MAX - 32) {
			/* No epoch came in time (an event that allows one was never reached): what
			 * was retained is given up, the next epoch starts anew. */
			r->flags |= SF_R_RESET;
			me.reset_pending = 1;
			G->snapshot_broken = 1;
		}
	}
	r->payload_crc = r->out_len ? sf_check(PAYLOAD + r->out_off, r->out_len) : 0;
	if (call && unlikely(!sf_collected(r, call, a)) && !sf_collected(r, call, a))
		sf_end(SF_E_TORN, r->nr, 0, me.regs);
	u64 c = 0; /* as result_crc(), with the seq that is not stored yet */
	const u64 *w = (const u64 *)r;
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(seq));
	for (int i = 2; i < 6; i++)
		__asm__("crc32q %1, %0" : "+r"(c) : "r"(w[i]));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"((u64)r->payload_crc));
	__asm__("crc32q %1, %0" : "+r"(c) : "r"(w[7]));
	r->crc = (u32)c;
	SF_FLIP_POINT(seq, flip_result, SF_T_RESULT);
	store(&r->seq, seq);
	ring(G->live);
}

/* The launcher has put right what a call brought: whoever reads it again, as a re-run, finds it whole. */
void sf_result_mended(const struct sf_result *res)
{
	struct sf_result *r = RESULT(~res->seq_inv - me.base);
	r->payload_crc = r->out_len ? sf_check(PAYLOAD + r->out_off, r->out_len) : 0;
	r->crc = result_crc(r);
}

const struct sf_result *sf_result_wait(struct sf_event *e)
{
	const struct sf_result *r = RESULT(e->seq - me.base);
	if (!wait_for(&r->seq, e->seq, SF_W_RECORD, 0, e->seq))
		return NULL;
	SF_FLIP_POINT(e->seq, flip_result, SF_T_RESULT);
	if (unlikely(r->seq_inv != ~e->seq || r->crc != result_crc(r) || r->out_off + (u64)r->out_len > SF_PAYLOAD_BYTES ||
		     (r->out_len && r->payload_crc != sf_check(PAYLOAD + r->out_off, r->out_len)))) {
		sf_raise(SF_A_LOG, e->seq);
		return NULL;
	}
	return r;
}

/* A replica that was made again stands where the one it was made from stands, and so has been
 * at every event before: a follower that lags behind is about to ask for its claims there. */
void sf_inherit_claims(u32 from)
{
	for (u64 seq = me.next > SF_RING - 1 ? me.next - (SF_RING - 1) : 1; seq < me.next; seq++) {
		const struct sf_claim_record *o = CLAIM(from, seq);
		struct sf_claim_record *a = CLAIM(me.slot, seq);
		if (a == o || o->seq != seq || !claim_valid(o, seq, from))
			continue;
		*a = *o;
		a->slot = me.slot;
		a->crc = claim_crc(a);
	}
}

/* What another replica claims, claimed by the leader as well: its child was killed on the way there, and nothing is
 * made of that event (spawn.c). */
void sf_claim_as(const struct sf_claim_record *o)
{
	struct sf_claim_record *a = CLAIM(me.slot, o->seq);
	const u64 seq = o->seq;
	*a = *o;
	a->slot = me.slot;
	a->crc = claim_crc(a);
	G->slot[me.slot].next = seq;
	ring(G->live);
}

/* A follower at the program's end: the leader has the last word. An alarm that another replica
 * has raised over this very event calls this one back; a leader that goes on shows that this
 * replica alone saw an end. */
void sf_follow_end(void)
{
	struct sf_replica *own = &G->slot[me.slot];
	u64 seq = me.next;
	while (load(&G->end) == SF_E_RUNNING) {
		u32 bell = load(&own->bell);
		if (alarmed(seq))
			sf_stand_again(me.regs);
		if (RESULT(seq - me.base)->seq == seq)
			sys1(NR_exit_group, 1);
		sys4(SYS_futex, &own->bell, FUTEX_WAIT, bell, sleep_limit);
	}
}

void sf_event_done(struct sf_event *e, const struct sf_result *r)
{
	u32 flags = r->flags;
	me.next = e->seq + 1;
	if (me.slot != 0) {
		if (flags & SF_R_RESET)
			me.base = me.next;
		store(&G->slot[me.slot].done, me.next);
		if (unlikely(load(&G->sleepers) & 1))
			ring(1);
	}
	if (unlikely(flags & SF_R_BARRIER) && me.slot == 0) {
		followers_at(me.next, me.next); /* an alarm is looked at again on the next claim */
		sf_mapped_by_all();
	}
}

/* The same for an event that the program knows nothing of. */
void sf_own_event_done(struct sf_event *e, const struct sf_result *r)
{
	me.own_event = 0;
	app.own_events++;
	G->slot[me.slot].own_events = app.own_events;
	sf_flip_moved();
	sf_event_done(e, r);
}

void sf_raise(u32 alarm, u64 seq)
{
	u32 quiet = SF_A_QUIET;
	/* alarm_seq is read by others only after alarm: store it first, keep the lowest. */
	if (load(&G->alarm) == SF_A_QUIET) {
		G->alarm_slot = me.slot;
		sf_flip_alarm();
		store(&G->alarm_seq, seq);
	}
	if (__atomic_compare_exchange_n(&G->alarm, &quiet, alarm, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
		for (u32 s = 0; s < me.replicas; s++)
			if (s != me.slot)
				sf_wake(s);
	}
	ring_launcher();
}

/* Count claims of the disputed event: the largest set of equal claims wins; slots that
 * claim something else, or nothing, are losers. Without a majority everybody loses. */
static void vote(void)
{
	struct sf_replica *own = &G->slot[me.slot];
	u64 seq = G->alarm_seq;
	u32 best = 0, best_n = 0, all = G->live, there = 0;
	for (u32 a = 0; a < SF_SLOTS_MAX; a++) {
		const struct sf_claim_record *x = CLAIM(a, seq);
		if (!(all & 1u << a) || x->seq != seq || !claim_valid(x, seq, a))
			continue;
		u32 set = 0, n = 0;
		there |= 1u << a;
		for (u32 b = 0; b < SF_SLOTS_MAX; b++) {
			const struct sf_claim_record *y = CLAIM(b, seq);
			if (!(all & 1u << b) || y->seq != seq || !claim_valid(y, seq, b))
				continue;
			if (((x->state ^ y->state) | (x->bytes[0] ^ y->bytes[0]) | (x->bytes[1] ^ y->bytes[1]) | (x->ip ^ y->ip) |
			     (u64)(x->nr ^ y->nr) | (u64)(x->kind ^ y->kind) | (u64)(x->thread ^ y->thread)) == 0) {
				set |= 1u << b;
				n++;
			}
		}
		if (n > best_n) {
			best_n = n;
			best = set;
		}
	}
	/* More than half have not come, and are late (pace.rs): the event is that of the others alone. */
	u32 out = all & ~there, out_n = (u32)__builtin_popcount(out);
	if (out_n > best_n)
		best = out, best_n = out_n;
	own->losers = 2 * best_n > (u32)__builtin_popcount(all) ? all & ~best : all;
	own->verdict_seq = seq;
}

/* Here the launcher is obeyed. */
/* This replica says that it pauses, or does so still. */
static void pauses(struct sf_replica *own)
{
	store(&own->phase, SF_P_PAUSED);
	ring_launcher();
}

/* Its answer to command `seq`. */
static void answer(struct sf_replica *own, u64 seq, s64 ret)
{
	own->cmd_ret = ret;
	store(&own->cmd_ack, seq);
	ring_launcher();
}

/* Back to the program, or to look for another replica's place. */
static void resume(struct sf_replica *own, u64 seq)
{
	me.raised = 0;
	sf_pair_speak();
	if (me.readable != 1)
		sf_readable(me.readable);
	store(&own->phase, SF_P_RUNNING);
	answer(own, seq, 0);
	sf_signals_release();
}

/* It leads: answered as the follower that it was, and the next command is for the leader. */
static struct sf_replica *leads_now(struct sf_replica *own, u64 seq)
{
	struct sf_replica *leader = &G->slot[0];
	leader->cmd_ack = leader->cmd_seq;
	store(&leader->phase, SF_P_PAUSED);
	answer(own, seq, 0);
	return leader;
}

static void tell_hash(struct sf_replica *own)
{
	struct sf_hash h = sf_memory_hash(0);
	own->hash[0] = app.blind ? me.slot : h.a; /* nobody knows: as nobody else's */
	own->hash[1] = h.b;
}

/* What the launcher asks of a replica that pauses, but for what changes who answers, or ends the pause. */
static s64 obey(struct sf_replica *own)
{
	switch (own->cmd) {
	case SF_C_VOTE: vote(); break;
	case SF_C_SEND: sf_send(); break;
	case SF_C_RECEIVE: return sf_receive();
	case SF_C_KEEPER: sf_make_keeper(); break;
	case SF_C_REMAP: return sf_remap();
	case SF_C_WATCH: return sf_watch_again(own->cmd_arg);
	case SF_C_TOUCH: (void)*(volatile u8 *)own->cmd_arg; break;
	case SF_C_DROP: return sys3(NR_madvise, own->cmd_arg, 4096, 4 /* MADV_DONTNEED */);
	case SF_C_HASH: tell_hash(own); break;
	case SF_C_PATCH:
		sf_apply_patch((const u8 *)(SF_SHARED + own->cmd_arg), (u32)own->cmd_arg2);
		/* Replicas are not at one place: they would come by it unequally often. */
		tls.budget = tls.aim = app.yields = 0;
		app.locks = G->locks;
		break;
	case SF_C_HEAR:
		me.hear = 1;
		me.gives = me.slot == 0 && own->cmd_arg;
		break;
	case SF_C_GIVE: return sf_pair_give();
	case SF_C_TAKE: return sf_pair_take();
	case SF_C_INHERIT: return sf_baton_inherit((u32)own->cmd_arg);
	case SF_C_SEGMENTS: return sf_segments_anew();
	case SF_C_POOL: return sf_pair_pool();
	case SF_C_EXIT:
		for (;;)
			sys1(NR_exit_group, 0);
	}
	return 0;
}

void sf_pause(void)
{
	struct sf_replica *own = &G->slot[me.slot];
	sf_signals_hold();
	me.readable = (s32)sf_readable(1); /* for the launcher, which may have to copy it */
	own->again = me.next;
	pauses(own);
	for (;;) {
		u32 bell = load(&own->bell);
		u64 seq = load(&own->cmd_seq);
		if (seq == own->cmd_ack) {
			sys4(NR_futex, &own->bell, FUTEX_WAIT, bell, sleep_limit);
			continue;
		}
		s64 ret;
		switch (own->cmd) {
		case SF_C_FORK:
			ret = sf_fork_follower((u32)own->cmd_arg);
			own = &G->slot[me.slot]; /* the copy goes on here as another slot */
			if (ret == -1 && me.slot != 0) { /* it pauses as well: what it was copied from may be far from any event */
				own->again = me.next;
				pauses(own);
				continue;
			}
			break;
		case SF_C_LEAD:
			ret = sf_pair_lead(own->cmd_arg != 0);
			if (ret == 0 && !own->cmd_arg) {
				own = leads_now(own, seq);
				continue;
			}
			break;
		case SF_C_BEAR:
			ret = sf_spawn_nobody(own->cmd_arg, own->cmd_arg2);
			if (ret == 0) { /* the child, in a group of its own, pauses as well */
				own->cmd_ack = own->cmd_seq;
				own->again = me.next;
				pauses(own);
				continue;
			}
			break;
		case SF_C_SEEK:
			me.seek = (u32)own->cmd_arg;
			me.how = (u32)own->cmd_arg2;
			/* fall through */
		case SF_C_RESUME: resume(own, seq); return;
		default: ret = obey(own);
		}
		answer(own, seq, ret);
	}
}

/* A pause of a replica that is at no event. */
void sf_stand(void)
{
	sf_pause();
}

/* ... and that goes on with what the launcher has left of it. */
NORETURN void sf_stand_again(struct sf_regs *r)
{
	sf_stand();
	sf_again(r);
}
