/* Ground: what everything else stands on: the way to the kernel, digests, time. */
#ifndef SF_GROUND_H
#define SF_GROUND_H

#include "layout/state.h"

/* gate.S: the only way to the kernel */
s64 sf_gate(const u64 call[7], u64 token);
s64 sf_raw_gate(const u64 call[7], u64 token);
void sf_leave(const struct sf_regs *) NORETURN;
void sf_return_gate(u64 rsp, u64 token) NORETURN;
extern u8 sf_entry_syscall[], sf_entry_entropy[], sf_gate_open[], sf_gate_syscall[], sf_gate_return[], sf_raw_syscall[], sf_raw_return[],
	sf_sigreturn_syscall[], sf_sigreturn_return[], sf_gate_pending[], sf_sigreturn_tail[], sf_sigreturn_jump[], sf_signal_entry[],
	sf_restorer[];
extern u8 sf_stack[], sf_alt_stack[], sf_image_start[], sf_image_end[];
#define ALT_STACK_BYTES 65536
#define SF_NOT_MADE (-512) /* the gate: a signal came first (the kernel's ERESTARTSYS, which nobody sees) */

struct sf_orphan; /* calls/calls.h */
s64 sf_spawn_gate(const u64 call[7], u64 token);
s64 sf_orphan_gate(struct sf_orphan *, u64 token);

/* base.c: the few library routines the agent needs, and digests */
void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);
int memcmp(const void *, const void *, size_t);
size_t sf_strlen(const char *);
int sf_page_is_zero(const u64 *);
u64 sf_hex(const u8 **);
u32 sf_decimal(char *, u64);
u32 sf_check(const void *, size_t);
void sf_hash_bytes(struct sf_hash *, const void *, size_t);
NORETURN COLD void sf_bug(u32 line, s64 value);
#define ASSERT(c) \
	do { \
		if (unlikely(!(c))) \
			sf_bug(__LINE__, (s64)(me.next)); \
	} while (0)

INLINE u64 sf_mix(u64 h, u64 v)
{
	/* 64x64->128 multiply, halves folded: one flipped input bit changes about half of the
	 * output bits. The constant is odd with 32 ones, from the digits of the golden ratio. */
	__uint128_t m = (__uint128_t)(h ^ v ^ 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
	return (u64)m ^ (u64)(m >> 64);
}

/* One replica alone compares with nobody: its records would have no reader. */
INLINE int sf_alone(void)
{
	return me.replicas == 1;
}

void sf_tsc_faults(int yes);
void sf_cpuid_faults(int yes);
void sf_code_traps(int yes);
INLINE u64 sf_tsc(void)
{
	u32 lo, hi;
	if (unlikely(me.tsc_traps))
		return me.fake_tsc += 64; /* about what a look at the clock costs */
	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (u64)hi << 32 | lo;
}

/* The same where it has to be true although reading it faults (PR_SET_TSC), for two calls more. */
INLINE u64 sf_true_tsc(void)
{
	u32 lo, hi;
	if (likely(!me.tsc_traps))
		return sf_tsc();
	sf_tsc_faults(0);
	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	sf_tsc_faults(1);
	return (u64)hi << 32 | lo;
}

INLINE u32 sf_cpu(void)
{
	u64 c;
	__asm__ volatile("rdpid %0" : "=r"(c));
	return c & 0xfff;
}

INLINE s64 sf_sys(u64 nr, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
	u64 call[7] = { nr, a, b, c, d, e, f };
	u64 saved = tls.abort;
	tls.abort = 0;
	/* The agent's own calls mint their token here, on the only path that makes them. */
	tls.token = tls.secret ^ nr;
	tls.selector = 1; /* a handler inside this one has left it at 0 (signal.c) */
	s64 r = sf_gate(call, tls.secret ^ nr);
	tls.abort = saved;
	return r;
}
/* Made whatever signals wait. May stand between another call's token and its use, and in its
 * open gate. */
INLINE s64 sf_raw(const u64 call[7])
{
	u64 kept = tls.token, selector = tls.selector;
	tls.token = tls.secret ^ ~call[0];
	tls.selector = 1;
	s64 r = sf_raw_gate(call, tls.secret ^ ~call[0]);
	tls.selector = selector;
	tls.token = kept;
	return r;
}

static inline s64 sf_raw6(u64 nr, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
	u64 call[7] = { nr, a, b, c, d, e, f };
	return sf_raw(call);
}

/* What a call answered is an errno, where addresses and numbers above 2^63 are answers too. */
static inline int sf_failed(s64 r)
{
	return (u64)r > -4096ull;
}

/* The end of the page that a byte before `n` is in. */
static inline u64 sf_page_up(u64 n)
{
	return (n + 4095) & ~4095ull;
}

NORETURN INLINE void sf_sigreturn(u64 rsp)
{
	tls.leaving = tls.secret ^ rsp;
	tls.selector = 1;
	sf_return_gate(rsp, tls.secret ^ rsp);
}
#define sys0(n) sf_sys(n, 0, 0, 0, 0, 0, 0)
#define sys1(n, a) sf_sys(n, (u64)(a), 0, 0, 0, 0, 0)
#define sys2(n, a, b) sf_sys(n, (u64)(a), (u64)(b), 0, 0, 0, 0)
#define sys3(n, a, b, c) sf_sys(n, (u64)(a), (u64)(b), (u64)(c), 0, 0, 0)
#define sys4(n, a, b, c, d) sf_sys(n, (u64)(a), (u64)(b), (u64)(c), (u64)(d), 0, 0)
#define sys6(n, a, b, c, d, e, f) sf_sys(n, (u64)(a), (u64)(b), (u64)(c), (u64)(d), (u64)(e), (u64)(f))

/* init.c: from the exec stop to the program's first instruction */
/* Steps of the start, which crates/replica/src/supervise/mod.rs has messages for. */
enum sf_setup {
	SF_STEP_FILTER = 2,
	SF_STEP_ARM,
	SF_STEP_PRIVATE,
	SF_STEP_SIGNALS,
	SF_STEP_DOMAIN,
	SF_STEP_COPIES = 10, /* the keeper; a follower: its slot more */
};
NORETURN void sf_setup_failed(u32 step, s64 err);

/* How the run ends, as the launcher is to believe it (abi.h, end_inv). */
INLINE void sf_say_end(u32 end)
{
	store(&G->end_inv, ~end);
	store(&G->end, end);
}

INLINE void sf_take_back_end(void)
{
	store(&G->end, 0);
	store(&G->end_inv, 0);
}

#endif
