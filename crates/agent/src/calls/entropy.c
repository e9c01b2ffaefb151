/* Entropy: instructions and clocks whose answer differs from run to run or core to core.
 *
 * Each is an event: the leader asks the hardware, the log carries the answer, followers
 * take it. docs/reference/entropy.md lists every source and its treatment (entropy.def).
 *
 * Not covered: rdrand or rdpid in code that was never patched (JIT pages), and cpuid there if the processor
 * cannot let it fault;
 * `steadfast run --explain` counts unpatched executable bytes.
 */
#include "agent.h"
#include <asm/errno.h>

static u64 *reg_of(struct sf_regs *r, u32 n)
{
	switch (n) {
	case 0: return &r->rax;
	case 1: return &r->rcx;
	case 2: return &r->rdx;
	case 3: return &r->rbx;
	case 4: return &r->rsp;
	case 5: return &r->rbp;
	case 6: return &r->rsi;
	case 7: return &r->rdi;
	case 8: return &r->r8;
	case 9: return &r->r9;
	case 10: return &r->r10;
	case 11: return &r->r11;
	case 12: return &r->r12;
	case 13: return &r->r13;
	case 14: return &r->r14;
	default: return &r->r15;
	}
}

static void cpuid(u32 leaf, u32 sub, u32 out[4])
{
	if (me.tsc_traps)
		sf_cpuid_faults(0);
	__asm__ volatile("cpuid" : "=a"(out[0]), "=b"(out[1]), "=c"(out[2]), "=d"(out[3]) : "a"(leaf), "c"(sub));
	if (me.tsc_traps)
		sf_cpuid_faults(1);
	/* The number of the core that answers, and transactional memory, whose aborts are
	 * timing: Intel SDM vol. 2, CPUID; AMD APM vol. 3, appendix E. */
	switch (leaf) {
	case 1: out[1] &= 0x00ffffff; break;
	case 7:
		if (sub == 0) {
			out[1] &= ~(1u << 4 | 1u << 11); /* HLE, RTM */
			out[2] &= ~(1u << 5); /* WAITPKG: its carry flag tells whether time ran out */
		}
		break;
	case 0xd:
		if (sub == 1)
			out[0] &= ~(1u << 2); /* xgetbv with ecx 1: which state is in use is timing */
		break;
	case 0x80000008:
		out[1] &= ~(1u << 4); /* RDPRU: counters of the core */
		break;
	case 0xb:
	case 0x1f: out[3] = 0; break;
	case 0x8000001e: out[0] = 0; break;
	}
}

static void ask(u32 kind, u32 size, const u64 a[2], u64 v[2])
{
	u8 ok = 0;
	switch (kind) {
	case SF_I_RDTSC:
	case SF_I_RDTSCP: v[0] = sf_true_tsc(); break;
	case SF_I_CPUID: cpuid((u32)a[0], (u32)a[1], (u32 *)v); break;
	case SF_I_RDRAND:
		__asm__ volatile("rdrand %0; setc %1" : "=r"(v[0]), "=qm"(ok)::"cc");
		v[1] = ok;
		break;
	case SF_I_RDSEED:
		__asm__ volatile("rdseed %0; setc %1" : "=r"(v[0]), "=qm"(ok)::"cc");
		v[1] = ok;
		break;
	case SF_I_RDPID:
		v[0] = 0; /* core 0, as getcpu(2) answers */
		break;
	}
	(void)size;
}

static void give(struct sf_regs *r, u32 kind, u32 dest, u32 size, const u64 v[2])
{
	const u32 *w = (const u32 *)v;
	u64 *d;
	switch (kind) {
	case SF_I_RDTSCP:
		r->rcx = 0; /* TSC_AUX names the core */
		/* fall through */
	case SF_I_RDTSC:
		r->rax = (u32)v[0];
		r->rdx = v[0] >> 32;
		break;
	case SF_I_CPUID:
		r->rax = w[0];
		r->rbx = w[1];
		r->rcx = w[2];
		r->rdx = w[3];
		break;
	case SF_I_RDRAND:
	case SF_I_RDSEED:
		d = reg_of(r, dest);
		if (size == 2)
			*d = (*d & ~0xffffull) | (v[0] & 0xffff);
		else
			*d = size == 4 ? (u32)v[0] : v[0];
		r->eflags = (r->eflags & ~0x8d5ull) | (v[1] & 1); /* CF; OF SF ZF AF PF are 0 */
		break;
	case SF_I_RDPID: *reg_of(r, dest) = v[0]; break;
	}
}

struct asked {
	struct sf_regs *r;
	u32 kind, dest, size;
	u64 v[2];
};

static enum sf_claim claim_entropy(struct sf_event *e, struct sf_regs *r, void *arg)
{
	struct asked *q = arg;
	SF_FLIP_POINT(me.next, flip_event, SF_T_EVENT);
	*e = (struct sf_event){ .seq = me.next, .nr = q->kind, .kind = SF_K_ENTROPY };
	if (q->kind == SF_I_CPUID) {
		e->args[0] = (u32)r->rax;
		e->args[1] = (u32)r->rcx;
	}
	return SF_CLAIMED;
}

static void agreed_entropy(struct sf_event *e, struct sf_regs *r, void *arg)
{
	(void)r, (void)arg;
	SF_FLIP_POINT(e->seq, flip_voted, SF_T_VOTED);
}

static const struct sf_result *act_entropy(struct sf_event *e, void *arg)
{
	struct asked *q = arg;
	ask(q->kind, q->size, e->args, q->v);
	/* In the record itself: a loop that only looks at the clock makes as many of
	 * these as it can, and each further line costs a transfer between cores. */
	struct sf_result *res = sf_result_begin(e, (s64)q->v[0]);
	res->aux = q->v[1];
	res->flags |= (u16)sf_threads_due();
	if (unlikely(sf_signal_pending()))
		res->flags |= SF_R_MORE; /* a loop that only looks at the clock has events too */
	sf_result_end(res);
	return res;
}

static void take_entropy(struct sf_event *e, const struct sf_result *done, void *arg)
{
	struct asked *q = arg;
	(void)e;
	q->v[0] = (u64)done->ret;
	q->v[1] = done->aux;
}

static int done_entropy(struct sf_event *e, const struct sf_result *res, void *arg)
{
	struct asked *q = arg;
	(void)e, (void)res;
	give(q->r, q->kind, q->dest, q->size, q->v);
	return 0;
}

static const struct sf_step entropy = { claim_entropy, agreed_entropy, act_entropy, take_entropy, done_entropy, 0 };

static void on_entropy(struct sf_regs *r, u64 desc)
{
	struct asked q = { .r = r, .kind = desc & 0xff, .dest = desc >> 8 & 0xff, .size = desc >> 16 & 0xff };
	struct sf_event e;
	tls.inside = 1;
	me.regs = r;
	if (q.kind == SF_DESC_SAVED) {
		sf_fp_complete(tls.ea, r->rdx << 32 | (u32)r->rax, q.dest & 1);
		return;
	}
	if (q.kind == SF_DESC_DEATH)
		sf_die_agreed(r, q.dest);
	if (q.kind == SF_DESC_NO_FRAME)
		sf_no_frame(r);
	if (q.kind == SF_DESC_FOUND) {
		sf_found(r, desc >> 8);
		return;
	}
	if (q.kind == SF_DESC_SIGNALS) {
		sf_more_signals(r);
		return;
	}
	if (q.kind == SF_DESC_BATON) {
		sf_baton(r);
		return;
	}
	if (q.kind == SF_DESC_EPOCH) {
		sf_epoch(r);
		return;
	}
	if (q.kind == SF_DESC_YIELD) {
		sf_threads_yield(r);
		return;
	}
	if (q.kind == SF_DESC_SETTLE) {
		sf_settle(r);
		return;
	}
	if (q.kind == SF_DESC_LOOK)
		sf_threads_look(r);
	if (q.kind == SF_DESC_LOOK || q.kind == SF_DESC_TURN)
		return;
	me.doing = SF_D_ENTROPY;
	me.doing_desc = desc;
	u32 flags = (u32)sf_event(&e, r, &entropy, &q);
	if (unlikely(flags & (SF_R_MORE | SF_R_TURN | SF_R_LOOK)))
		sf_turn_brings(flags);
}

void sf_on_entropy(struct sf_regs *r, u64 desc)
{
	on_entropy(r, desc);
	if (unlikely(app.turn))
		sf_turn(r);
	/* One that was made another replica, or a site's that has joined, may have begun between a call and its baton. */
	if (unlikely(app.domain))
		sf_domain_after(r);
}

/* Clock reads of the leader without a kernel entry. 0: not one of these. */
int sf_clock(u32 nr, u64 *a, s64 *ret)
{
	if (!sf_boot.vdso_ok)
		return 0;
	u64 v[2] = { 0, 0 };
	switch (nr) {
	case 228: /* clock_gettime: only ids that the vDSO answers by itself (vdso(7)) */
		if (a[0] > 11 || !((1u << a[0]) & (1u << 0 | 1u << 1 | 1u << 4 | 1u << 5 | 1u << 6 | 1u << 7 | 1u << 11)))
			return 0;
		*ret = ((s64(*)(u64, u64))sf_boot.vdso_clock_gettime)(a[0], (u64)v);
		if (*ret == 0 && unlikely(sf_user_put(a[1], v, sizeof v)))
			*ret = -EFAULT;
		return 1;
	case 96: /* gettimeofday */
		if (a[1])
			return 0; /* the time zone is the kernel's */
		*ret = ((s64(*)(u64, u64))sf_boot.vdso_gettimeofday)((u64)v, 0);
		if (a[0] && sf_user_put(a[0], v, sizeof v))
			*ret = -EFAULT;
		return 1;
	case 201: /* time */
		*ret = ((s64(*)(u64))sf_boot.vdso_time)(0);
		if (a[0] && sf_user_put(a[0], ret, 8))
			*ret = -EFAULT;
		return 1;
	}
	return 0;
}
