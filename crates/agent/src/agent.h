/* Agent: the code that lives inside every replica.
 *
 * Ground rules
 *  1. Freestanding: no libc, no allocation, no thread-local storage but the %gs page.
 *  2. General registers only; the linked blob is checked for vector instructions.
 *  3. The program's memory is touched under a guard only: its pointers may be wild.
 *  4. The kernel is reached through sf_gate, with a token that the vote produced
 *     (sf_call_agreed) or that this file made for the agent's own needs (sf_sys).
 *  5. State that must be equal in all replicas lives in struct sf_mirror; what differs by
 *     role lives in struct sf_me. A transplant copies the first and never the second.
 */
#ifndef SF_AGENT_H
#define SF_AGENT_H

#include <stddef.h>
#include <stdint.h>
#include "abi.h"
#include "calls.h"
#include "flip.h"
#include "regs.h"
#include "tls.h"

/* One image, linked at its final address: nothing goes through a table of addresses. */
#pragma GCC visibility push(hidden)

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint16_t u16;
typedef uint8_t u8;

#define INLINE static inline __attribute__((always_inline))
#define NORETURN __attribute__((noreturn))
#define COLD __attribute__((cold, noinline))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define barrier() __asm__ volatile("" ::: "memory")
#define load(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define store(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)

/* Registers of the program at an event, as gate.S pushes them. */

struct sf_tls {
	u64 rcx, desc, rsp, stack, rip, token, secret, selector, resume, inside, abort, ea, scratch, leaving, budget;
	/* Injected faults (flip.h): a page of its own, so payloads know the places by number. */
	u64 flip_rcx __attribute__((aligned(2048)));
	u64 flip_desc, flip_rsp, flip_rip;
	u64 flip_event, flip_voted, flip_claim, flip_result; /* event that one waits for, or ~0 */
	u64 spare[8];
	u64 flip_count[SF_FLIPS_MAX], flip_after[SF_FLIPS_MAX];
	u64 seek;          /* enum sf_seek + 1 while this replica looks for a payload, or 0 */
	u64 seek_any, seek_less[16]; /* what the registers of struct sf_regs lack to be 0, in its order; rcx is left out */
};
_Static_assert(offsetof(struct sf_tls, flip_rcx) == TLS_FLIP_RCX, "flip.S, payloads");
_Static_assert(offsetof(struct sf_tls, flip_desc) == TLS_FLIP_DESC, "flip.S, payloads");
_Static_assert(offsetof(struct sf_tls, flip_rsp) == TLS_FLIP_RSP, "flip.S");
_Static_assert(offsetof(struct sf_tls, flip_rip) == TLS_FLIP_RIP, "flip.S");
_Static_assert(offsetof(struct sf_tls, flip_count) == TLS_FLIP_COUNT, "payloads");
_Static_assert(offsetof(struct sf_tls, flip_after) == TLS_FLIP_AFTER, "payloads");
_Static_assert(offsetof(struct sf_tls, seek_any) == TLS_SEEK_ANY, "crates/replica/src/supervise/meeting.rs");
_Static_assert(offsetof(struct sf_tls, seek_less) == TLS_SEEK_LESS, "crates/replica/src/supervise/meeting.rs");
_Static_assert(sizeof(struct sf_tls) == 4096, "a page");
_Static_assert(offsetof(struct sf_tls, token) == TLS_TOKEN, "gate.S");
_Static_assert(offsetof(struct sf_tls, selector) == TLS_SELECTOR, "gate.S");
_Static_assert(offsetof(struct sf_tls, resume) == TLS_RESUME, "gate.S");
_Static_assert(offsetof(struct sf_tls, abort) == TLS_ABORT, "gate.S");
_Static_assert(offsetof(struct sf_tls, ea) == TLS_EA, "crates/replica/src/modules.rs");
_Static_assert(offsetof(struct sf_tls, scratch) == TLS_SCRATCH, "gate.S");
_Static_assert(offsetof(struct sf_tls, leaving) == TLS_LEAVING, "gate.S");
_Static_assert(offsetof(struct sf_tls, budget) == TLS_BUDGET, "crates/replica/src/supervise/meeting.rs");

struct sf_guard {
	u64 rip, rsp, rbx, rbp, r12, r13, r14, r15;
};
int sf_guard_enter(struct sf_guard *) __attribute__((returns_twice));
void sf_guard_fail(struct sf_guard *) NORETURN;

#define SF_SIGNALS 64
struct sf_action { /* kernel's struct sigaction */
	u64 handler, flags, restorer, mask;
};
struct sf_siginfo {
	s32 signo, err, code, pad;
	u64 words[14];
};
_Static_assert(sizeof(struct sf_siginfo) == 8 * SF_SIGINFO_WORDS, "siginfo_t");

/* What the program has asked the kernel to remember about its process (kept.c). */
#define SF_KEPT_CALLS 32
#define SF_KEPT_TIMERS 16
#define SF_KEPT_BYTES 64
struct sf_kept {
	struct sf_kept_call {
		u32 nr;
		u32 bytes_n;
		u64 a[5];
		u8 bytes[SF_KEPT_BYTES]; /* what its pointer arguments point to */
	} call[SF_KEPT_CALLS];
	u32 calls;
	u32 lost; /* calls that found no room */
	struct sf_kept_timer {
		s64 interval[2], first[2]; /* seconds and nanoseconds as last set; first is 0: disarmed */
		u64 value;
		s32 signo, notify;
		u32 clock, absolute;
		u32 id; /* as the program knows it */
		u32 used;
	} timer[3 + SF_KEPT_TIMERS]; /* the three of setitimer(2) come first */
};

/* A file that the program maps shared (shared.c). */
#define SF_MAPS_MAX 64u
#define SF_M_KNOWN 1u  /* every entry */
#define SF_M_WRITE 2u  /* may be made writable: it has a ref */
#define SF_M_PROT 8 /* its protection, from this bit on */
#define SF_M_ZERO 16u   /* none: it is anonymous memory (null(4), /dev/zero) */
#define SF_M_STORES 4u /* has been writable: may hold what its file does not */
#define SF_M_SETTLED 64u /* every replica has copies of its pages (settle.c) */
#define SF_M_FRESH 128u  /* ... and does not have them yet */
#define SF_M_SEGMENT 32u /* not a view: memory that processes of the tree share (segment.c) */
struct sf_map {
	u64 start, end; /* of the program's memory */
	u64 offset;     /* of `start` in the file */
	u64 ref;        /* where the agent sees the same bytes as they are in the file, or 0 */
	u64 dev, ino;
	s32 hold; /* the launcher's descriptor of the file, or negative */
	u32 flags;
};

/* Memory that copies of this replica have in common with it, or will have (domain.c). */
#define SF_SEGMENTS_MAX 48u
#define SF_MADE_MAX 16u
#define SF_BY_NAME 2u
struct sf_segment {
	u64 start, end;
	u64 dev, ino; /* of the file that the leader's is, or 0 */
	u32 prot;
	u32 real; /* 0: private, as long as there is no copy; SF_BY_NAME: one that may be mapped once more */
};

/* A parent in vfork(2): what it goes on with when the child has left (spawn.c). */
struct sf_spawn {
	u32 active, has_wait_mask;
	u32 threads, spare;
	u64 mask, wait_mask;
	u64 alt_sp, alt_size;
	u32 alt_flags, pdeathsig;
	struct sf_regs regs;
	struct sf_action action[SF_SIGNALS + 1];
	struct sf_kept kept;
};

/* Equal in all replicas; hashed with the program's memory. */
struct sf_mirror {
	struct sf_action action[SF_SIGNALS + 1];
	u64 mask;         /* signals the program blocks */
	u64 wait_mask; /* in force while a call waits with a mask of its own (sigsuspend, ppoll) */
	u32 has_wait_mask;
	u32 pdeathsig;
	u64 alt_sp, alt_size;
	u32 alt_flags;
	u32 heap_plain; /* the kernel's break is the program's (memory.c) */
	/* Memory checks and deliveries of signals until now: they come by the clock, so the program's
	 * events are numbered without them, and event 7 of a run is that of the next. */
	u64 own_events;
	u64 brk_start, brk_now;
	struct sf_kept kept;
	u64 done_of_call;    /* bytes, of one that was cut short: calls.c, rest_of_call */
	/* thread.c; of the thread that runs: */
	u64 clear_tid, robust;
	u32 threads; /* alive; 0: the program has never made one */
	u32 current; /* index of the one that runs, or SF_NOBODY */
	u32 turn;    /* SF_TURN_* */
	u32 spent;   /* events since it went on */
	u64 quantum; /* passes of planted payloads after which it gives way, or 0 */
	u32 counts;  /* not 0: there is such a budget; of one thread alone: how often it was used up since a signal */
	u32 blind; /* the leader finds no procfs: memory is not compared (epoch.c) */
	u32 maps, map_files; /* entries of `map` in use, those with a ref */
	u32 map_settled;     /* pages of those that are settled */
	u32 spare;
	u64 map_stores;      /* bytes of those that may hold stores */
	u32 domain;          /* it shares writable memory with other processes (domain.c) */
	u32 segments, segments_lost; /* entries of `segment` in use; what happened to one could not be followed */
	u32 made_n;
	struct sf_made {
		u64 bytes;
		s32 id;
		u32 spare;
	} made[SF_MADE_MAX]; /* segments of System V that the program has made */
	struct sf_segment segment[SF_SEGMENTS_MAX];
	struct sf_spawn spawn;
	struct sf_map map[SF_MAPS_MAX];
};

struct rt_frame; /* frame.h */

struct sf_hash {
	u64 a, b;
};

/* Own to one process. */
struct sf_me {
	u32 slot;
	u32 role; /* enum sf_role */
	u64 next; /* index of the current or next event */
	u64 base; /* index of the first result in the log */
	u32 out;  /* leader: bytes of payload used */
	u32 reset_pending;
	s32 snapshot_pid;
	u32 raised;        /* this replica has raised the present alarm */
	u32 interruptible; /* an app call is being made: signals end it with SF_NOT_MADE or EINTR */
	u32 cut_short; /* ... and it has moved some of its bytes when the launcher's word ended it */
	u32 rewound; /* ... with SF_NOT_MADE after the kernel had begun it and would start it again */
	u64 last_epoch_tsc, epoch_gap, snapshot_faults;
	u64 last_epoch_ns; /* leader: CPU time it had then */
	u64 epoch_late;    /* ... gaps that it has let pass since, idle */
	struct sf_guard *guard;
	struct sf_guard guard_store;
	struct sf_regs *regs; /* of the event in progress */
	u32 doing;            /* enum sf_doing: how that event starts again */
	u64 doing_desc;
	struct sf_siginfo pending[SF_HAND_MAX]; /* the leader's hand (signal.c) */
	u32 pending_n;
	u32 fresh;      /* a leader made anew: what the kernel held for the program is gone */
	u32 reborn;     /* ... for good: its timers have other numbers */
	u32 renumbered; /* ... and so has the process */
	u32 tsc_traps; /* rdtsc and cpuid fault: code was mapped that nobody could patch */
	u32 stepping;
	u32 restarted; /* a transplant replaced the registers of the event in progress */
	u32 poison; /* this replica's own execution of an agreed call failed: it must lose the next vote */
	struct sf_regs fault_regs;
	u64 fault_frame; /* kernel signal frame in whose handler this replica runs, or 0 */
	u64 regs_digest;
	u32 tracking, tracked_by; /* epoch.c: does the kernel list written pages for this process? */
	s32 uffd;
	u64 trapped; /* return address of the call that came through the backstop, or 0 */
	u64 stack_from, stack_to; /* stack bytes known to be readable */
	u64 queries; /* follower: events since the last one that all wait for */
	u32 waited; /* for others, since the claim of the event in progress was made */
	u64 wrote; /* leader: bytes moved by calls that the kernel counts as writes */
	u64 fake_tsc;
	u32 tables_apart; /* the leader's descriptor table is its own, and those of followers are empty */
	s32 parent; /* follower: whom it dies with */
	s32 readable; /* in a pause: what sf_readable answered */
	u32 lends; /* leader: 1 more than the same, while followers map what it has mapped */
	u32 own_event; /* that in progress is one of the agent's own */
	u32 replicas; /* of the group, dead ones too; its own, since a word that all read would be struck for all */
	u32 fatal; /* a signal that ends the program waits for the next event */
	u32 seek;  /* instructions left on the way to where another replica stands (meet.c) */
	u32 how;   /* enum sf_seek */
	u32 hear;  /* ... and once there: an event for signals comes next */
	u32 heard; /* leader: an epoch comes before it */
	u32 holds;     /* the baton of its domain (domain.c): it runs, and others of its index do not */
	u32 courteous; /* ... and gave it while others were waiting */
	u32 forks;     /* leader: copies that it has made of itself */
	u64 ticket;    /* of the baton that it holds, or held last */
	u64 ready;     /* event whose call would not wait, or did not a moment ago */
	u32 spent;     /* calls since it took the baton */
	u32 gives; /* leader: at the next event for signals another thread has its turn */
	u64 made, retried; /* event whose call the kernel has carried out, and of which a fault here began anew */
	s64 made_ret;
	struct sf_hash snapshot; /* what was agreed on when the snapshot was left, and whether it can be had again */
	u32 snapshot_known, snapshot_remade;
};

enum sf_doing { SF_D_SYSCALL, SF_D_ENTROPY, SF_D_FAULT, SF_D_EPOCH, SF_D_NOTHING };
#define SF_DESC_EPOCH 0xfe
#define SF_DESC_SIGNALS 0xfd
#define SF_DESC_DEATH 0xfc /* the signal above it, << 8 */
#define SF_DESC_LOOK 0xfa /* which threads could go on (thread.c) */
#define SF_DESC_TURN 0xf9
#define SF_DESC_BATON 0xf8 /* domain.c */
#define SF_DESC_YIELD 0xf7 /* the budget of the running thread is used up */
#define SF_DESC_NO_FRAME 0xf6 /* there is no room for a handler's frame (signal.c) */
#define SF_DESC_SETTLE 0xf5 /* settle.c */
#define SF_DESC_FOUND 0xfb /* the state that is looked for, but for rcx; << 8: number of the payload */
#define SF_DESC_SAVED 0xe0 /* bit 8: compact format */
#define SF_DESC_FLIP 0xf0
#define SF_DESC_FLIP_EVENT 0xf1

enum sf_role { SF_LEADER, SF_FOLLOWER, SF_RERUN, SF_SNAPSHOT, SF_KEEPER, SF_INIT };

extern struct sf_me me;
extern struct sf_mirror app;
extern struct sf_tls tls;
extern struct sf_boot sf_boot;
extern struct sf_traps sf_traps;
#define G ((struct sf_group *)SF_SHARED)
#define CLAIM(slot, i) ((struct sf_claim_record *)(SF_SHARED + SF_OFF_CLAIMS) + (slot) * SF_RING + ((i) % SF_RING))
#define RESULT(i) ((struct sf_result *)(SF_SHARED + SF_OFF_RESULTS) + (i))
#define PAYLOAD ((u8 *)(SF_SHARED + SF_OFF_PAYLOAD))

/* gate.S */
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

/* base.c */
void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);
int memcmp(const void *, const void *, size_t);
size_t sf_strlen(const char *);
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

/* log.c: rendezvous */
int sf_log_room(u64 seq);
int sf_followers_at(u64 seq, u64 now);
enum sf_meet { SF_AGREED, SF_RESTART };
struct sf_event {
	u64 seq;
	u32 nr;
	u16 kind;
	u16 lockstep;
	u64 outs; /* the call may bring bytes */
	u64 args[6];
	struct sf_hash bytes;
	u64 state;
};
void sf_arrive(struct sf_event *, const struct sf_regs *);
int sf_claim_stands(const struct sf_event *, struct sf_event *now, const struct sf_regs *); /* 0: pause */
int sf_is_meant(const struct sf_event *); /* 0: pause */
enum sf_meet sf_meet_all(struct sf_event *);           /* before an effect */
enum sf_meet sf_meet_leader(struct sf_event *);        /* follower, before a query's result */
s64 sf_call_agreed(const struct sf_event *, const u64 call[7]);
struct sf_result *sf_result_begin(struct sf_event *, s64 ret);
void sf_result_bytes(struct sf_result *, const void *, u32 len);
void sf_result_end(struct sf_result *);
void sf_result_end_of(struct sf_result *, const struct sf_call *, const u64 a[6]);
void sf_result_mended(const struct sf_result *);
const struct sf_result *sf_result_wait(struct sf_event *); /* NULL: restart the event */
void sf_event_done(struct sf_event *, const struct sf_result *);
void sf_own_event_done(struct sf_event *, const struct sf_result *);
void sf_wake(u32 slot);
void sf_follow_end(void);
void sf_inherit_claims(u32 from);
COLD void sf_raise(u32 alarm, u64 seq);
COLD void sf_pause(void);
COLD void sf_stand(void);
COLD NORETURN void sf_stand_again(struct sf_regs *);

/* calls.c */
void sf_on_syscall(struct sf_regs *);
void sf_more_signals(struct sf_regs *);
s64 sf_user_bytes(void *to, u64 from, u64 n);
s64 sf_user_string(char *to, u64 from, u32 room);
s64 sf_fd_name(u64 fd, char *to, u32 room);
void sf_leaders_file(u64 fd, char to[40]);
void sf_mapped_by_all(void);
const struct sf_result *sf_result_flags(struct sf_event *, u32 flags);
int sf_signals_wait(void);
NORETURN COLD void sf_end(u32 end, u32 nr, s64 value, const struct sf_regs *);
NORETURN void sf_setup_failed(u32 step, s64 err);
#define SF_STEP_PRIVATE 4 /* supervise.rs knows it, too */
#define SF_STEP_SIGNALS 5
extern const struct sf_call sf_calls[];

/* args.c */
void sf_message_again(u64 at);
void sf_digest_args(struct sf_event *, const struct sf_call *, const u64 a[6]);
void sf_collect(struct sf_result *, const struct sf_call *, const u64 a[6], s64 ret);
int sf_collected(const struct sf_result *, const struct sf_call *, const u64 a[6]);
int sf_matches(const struct sf_result *, const struct sf_call *, const u64 a[6], s64 ret, u32 behind);
void sf_scatter(const struct sf_result *, const struct sf_call *, const u64 a[6], s64 ret);

/* memory.c */
s64 sf_memory_call(u32 nr, const u64 a[6], s64 forced);
s64 sf_affinity(u32 nr, const u64 a[6]);
void sf_follow_limit(u32 nr, const u64 a[6]);
void sf_epoch(struct sf_regs *);
void sf_privatise(u64 from, u64 to, u64 prot, int file);
s64 sf_privatise_all(void);
void sf_apply_patch(const u8 *plan, u32 len);
struct sf_hash sf_memory_hash(int dirty_only);

/* shared.c: files mapped shared */
struct sf_shared_file {
	u64 dev, ino;
	s32 hold;
	u32 flags;
	u64 size;
	s32 copy[SF_SLOTS_MAX]; /* of a segment: the number of each follower's */
};
#define SF_SHARED_PLAIN 1 /* map it as if it were private */
s64 sf_shared_mmap(const u64 a[6], s64 forced);
const struct sf_shared_file *sf_shared_found(void);
void sf_shared_given(const struct sf_shared_file *);
int sf_shared_is_zero(void);
s64 sf_shared_allows(u32 nr, const u64 a[6]);
s64 sf_shared_changed(u32 nr, const u64 a[6], s64 ret);
int sf_shared_before(const struct sf_regs *, const struct sf_call *, u32 nr, const u64 a[6]);
int sf_shared_fault(const struct sf_regs *);
int sf_shared_waits_in_vain(const u64 a[6]);
void sf_shared_hash(struct sf_hash *);
void sf_shared_undo(void);
u64 sf_shared_part(u64 from, u64 to, int *view);
s64 sf_with_own_table(void (*)(void));
s64 sf_shared_restore(const struct sf_mirror *from, const u64 *list, u64 n);
NORETURN void sf_die_agreed(struct sf_regs *, u32 s);
int sf_shared_all_written(const struct sf_regs *);
int sf_shared_may_join(const void **table, u32 *bytes);
s64 sf_shared_joins(const void *table, u32 bytes);
int sf_shared_is_segment(struct sf_shared_file *);

/* settle.c: small files that others write to as well */
u32 sf_settle_wanted(u32 flags, u64 len);
void sf_settle_merge(u64 *to, const u64 *from, const u64 *base);
int sf_settle_differs(const struct sf_map *, u64 page);
u32 sf_settle_due(void);
void sf_settle_written(const struct sf_map *, u64 page);
void sf_settle(struct sf_regs *);
int sf_settle_there(struct sf_regs *);

/* domain.c: processes that share writable memory */
s64 sf_domain_init(void);
void sf_domain_changed(u32 nr, const u64 a[6], s64 ret);
int sf_domain_word(u64 at);
int sf_domain_before_fork(struct sf_regs *);
int sf_domain_ready(struct sf_regs *, const struct sf_call *, u32 nr, const u64 a[6]);
int sf_domain_refuses(void);
void sf_domain_call(const struct sf_call *, u32 nr, const u64 a[6], struct sf_regs *);
void sf_domain_after(struct sf_regs *);
void sf_domain_made(const u64 a[6], s64 id);
void sf_domain_named(const u64 a[6], s64 ret);
s64 sf_domain_attach(const u64 a[6], s64 forced);
s64 sf_domain_detach(const u64 a[6]);
s64 sf_domain_adopt(const struct sf_map *, const struct sf_shared_file *);
u64 sf_domain_id(void);
void sf_baton_give(void);
int sf_baton_wanted(void);
void sf_baton(struct sf_regs *);
void sf_baton_back(struct sf_regs *);
s64 sf_baton_inherit(u32 slot);
void sf_baton_is_of(u32 slot);

/* ward.c */
void sf_wards_look(void);
int sf_ward_takes(struct sf_siginfo *);
int sf_ward_may_show(u32 nr);
void sf_ward_asks(u32 nr, const u64 a[6], u64 to[6]);
s64 sf_ward_answers(u32 nr, const u64 a[6], s64 ret);
int sf_ward_parent(s64 *pid);

/* segment.c: files of /dev/shm that processes of a tree map by their names */
void sf_segment_opened(u32 nr, const u64 a[6], s64 fd);
int sf_segment_of_site(u64 fd);
int sf_segment_asks(const u64 a[6], struct sf_shared_file *);
int sf_segment_wanted(u64 fd, struct sf_shared_file *, u64 end, u64 how);
s64 sf_segment_map(const u64 a[6], s64 forced, const struct sf_shared_file *);
s64 sf_segments_anew(void);
s64 sf_segment_replaces(u64 from, u64 to, u64 offset, u32 prot, const struct sf_shared_file *);

/* signal.c */
NORETURN void sf_die(int s);
NORETURN void sf_no_frame(struct sf_regs *);
void sf_on_signal(int, struct sf_siginfo *, void *uc, u64 frame);
s64 sf_signals_init(void);
void sf_signals_receive(void);
int sf_signal_pending(void);
enum sf_interrupt {
	SF_I_NOTHING, /* no signal of the program's: the launcher wants a pause */
	SF_I_AGAIN,   /* deliver, and make the call after the handler */
	SF_I_ENDS,    /* deliver, and the call says EINTR */
};
enum sf_interrupt sf_interrupted(s64 ret);
int sf_signal_restarts(void);
void sf_signal_attach(struct sf_result *, int restart);
void sf_signal_taken(u64 siginfo);
void sf_signals_held(u64 set);
#define SF_READ_INFO 128u
void sf_signals_read(u64 fd, u64 at, u64 bytes);
void sf_signals_hold(void);
void sf_signals_hold_all(void);
void sf_signals_bequeath(void);
void sf_signals_let_go(void);
void sf_signals_reclaim(void);
void sf_signals_release(void);
int sf_user_put(u64 to, const void *from, u64 n);
void sf_deliver(struct sf_regs *, const struct sf_siginfo *);
s64 sf_sigaction(const u64 a[6]);
s64 sf_sigprocmask(const u64 a[6]);
s64 sf_sigaltstack(const u64 a[6]);
void sf_before_wait(const struct sf_call *, u32 nr, const u64 a[6]);
void sf_after_wait(void);
void sf_do_sigreturn(struct sf_regs *);
void sf_kernel_mask(void);
int sf_mask_is_old(void);
void sf_kernel_action(int);
u64 sf_frame_fp(u64 frame);
s64 sf_make_keeper(void);
void sf_as_event(struct sf_regs *);
NORETURN void sf_again(struct sf_regs *);
s64 sf_signals_start(void);
u32 sf_fp_bytes(void);
void sf_fp_save(void *);
void sf_fp_normalise(u8 *);
void sf_fp_complete(u64 at, u64 rfbm, int compact);
void sf_fp_load(const void *);

/* wait.c: calls that wait */
#define SF_WAITS 1u       /* may wait for something other than a disk */
#define SF_WAITS_ENDS 2u  /* a handler ends it, whatever its flags (signal(7)) */
#define SF_WAITS_LIMIT 4u /* may have a relative time limit */
extern const u8 sf_waits[512];
void sf_limit_begin(u64 seq, u32 nr, u64 call[7]);
void sf_limit_again(u64 call[7]);
void sf_limit_end(s64 ret);
void sf_limit_cut(u64 seq, u32 nr, const u64 a[6]);
void sf_kept_here(void);
u64 sf_now(void); /* CLOCK_MONOTONIC, nanoseconds */

/* kept.c: what the kernel holds for the program */
extern const u64 sf_kept_calls[8];
#define SF_IN_SET(set, nr) ((set)[(nr) / 64 & 7] >> ((nr) & 63) & 1)
void sf_kept_note(u32 nr, const u64 a[6], s64 ret);
s64 sf_kept_restore(void);
void sf_kept_siginfo(struct sf_siginfo *);
void sf_kept_delivered(const struct sf_siginfo *);
int sf_kept_answers(u32 nr, const u64 a[6], s64 *ret);
void sf_kept_translate(u32 nr, u64 call[7]);
s64 sf_kept_result(u32 nr, s64 ret);

/* storage.c: a pair's files */
#define PAIR ((struct sf_pair *)(SF_SHARED + SF_OFF_PAIR))
#define NOTE(seq) (&PAIR->note[(seq) % SF_RING])
u32 sf_pair_refuses(u32 nr, const u64 a[6]);
void sf_pair_private(u32 nr, u64 a[6]);
void sf_pair_before(u32 nr, const u64 a[6]);
void sf_pair_note(struct sf_event *, struct sf_result *, u32 nr, const u64 a[6], s64 ret);
int sf_pair_follow(struct sf_event *, const struct sf_call *, u32 nr, const u64 a[6], const struct sf_result *);
void sf_pair_wait(struct sf_event *, const struct sf_result *, const struct sf_call *, const u64 a[6]);
void sf_pair_init(void);
void sf_domain_of_site(u32 site);
void sf_pair_bore(s32 number, s32 own);
void sf_pair_born(void);
void sf_pair_ends(void);
s32 sf_pair_own(s32 number);
s32 sf_pair_reaped(s32 own);
s32 sf_pair_number(s32 own);
void sf_pair_grows(void);
s64 sf_pair_turn(struct sf_event *, u32 nr, const u64 a[6]);
int sf_pair_turned(u32 nr, const u64 a[6], s64 ret);
void sf_pair_leads(void);
int sf_pair_maps(u32 nr, const u64 a[6]);
void sf_pair_end_turn(void);
void sf_pair_bequeath(void);
void sf_pair_exec(struct sf_event *, u32 nr, const u64 a[6]);
const struct sf_call *sf_pair_row(u32 nr, const u64 a[6], const struct sf_call *, struct sf_call *own);
s64 sf_pair_lead(int asked);
s64 sf_pair_give(void);
s64 sf_pair_take(void);
s64 sf_kept_join(void);
void sf_pair_speak(void);

/* exec.c */
s64 sf_exec_begin(u32 nr, const u64 a[6]);
void sf_exec_failed(void);

/* spawn.c: child processes */
struct sf_orphan {
	struct {
		u64 flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
	} outer, inner;
	s64 pid;
};
_Static_assert(sizeof(struct sf_orphan) == 184 && offsetof(struct sf_orphan, inner) == 88, "gate.S");
s64 sf_spawn_gate(const u64 call[7], u64 token);
s64 sf_orphan_gate(struct sf_orphan *, u64 token);
s64 sf_orphan(u64 share);
const struct sf_call *sf_spawn_row(const struct sf_call *, struct sf_call *own, u32 nr, const u64 a[6]);
int sf_spawn_shares(u32 nr, const u64 a[6]);
void sf_spawn_hook(struct sf_event *, struct sf_regs *, const struct sf_call *, u32 nr, const u64 a[6]);
NORETURN void sf_spawned(s64 pid);
NORETURN void sf_spawn_goes_on(struct sf_event *, const struct sf_result *);
NORETURN void sf_spawn_dies(void);
void sf_log_anew(void);
void sf_claim_as(const struct sf_claim_record *);

/* entropy.c */
void sf_on_entropy(struct sf_regs *, u64 desc);
int sf_clock(u32 nr, u64 *a, s64 *ret);

/* flip.c */
void sf_flip_hit(struct sf_regs *, u64 desc);
void sf_flip_arm(void);
void sf_flip_disarm(void);
void sf_flip_rearm(void);
void sf_flip_alarm(void);
void sf_flip_moved(void);
int sf_flip_is_due(void);
void sf_flip_tick(struct sf_regs *, u8 *fp);

/* meet.c: to where another replica stands */
void sf_pause_here(struct rt_frame *);
void sf_step(struct rt_frame *);
void sf_seek_no_more(struct rt_frame *);
int sf_steps_on(struct rt_frame *);
void sf_found(struct sf_regs *, u64 payload);

/* profile.c */
void sf_profile(u64 ip);

#define SF_STRING2(x) #x
#define SF_STRING(x) SF_STRING2(x)
/* A moment of event `seq` at which a fault may strike: the program's registers in me.regs,
 * memory, or the registers of the function that this stands in. No register is declared
 * clobbered, as a particle declares nothing. */
#define SF_FLIP_POINT(seq, waits, when) \
	do { \
		if (unlikely((seq) == tls.waits)) \
			__asm__ volatile( \
				"movq %0, %%gs:" SF_STRING(TLS_FLIP_DESC) "; call sf_flip_own" ::"i"(SF_DESC_FLIP_EVENT | (when) << 8) \
				: "memory"); \
	} while (0)

/* What a transplant carries besides memory. */
struct sf_transfer {
	u64 next, base;
	struct sf_regs regs;
	struct sf_mirror app;
	u64 fs_base;
	u64 doing, doing_desc;
	u64 tsc_traps, slot;
	u64 tls_budget;
	u64 tls_rcx, tls_desc, tls_ea; /* of a trampoline that it may stand in */
	u64 holds, ticket, spent, ready; /* of struct sf_me: whether it has the baton of its domain, and its part of the turn */
	struct sf_traps traps;
	u64 fp_bytes;
	u8 fp[16384] __attribute__((aligned(64)));
};
#define TRANSFER ((struct sf_transfer *)(SF_SHARED + SF_OFF_TRANSFER))
#define SEEK_WORDS ((const volatile struct sf_seek_words *)(SF_SHARED + SF_OFF_SEEK_WORDS))
_Static_assert(SF_OFF_TRANSFER + sizeof(struct sf_transfer) <= SF_OFF_SEEK_WORDS, "a state, then words");
_Static_assert(SF_OFF_SEEK_WORDS + sizeof(struct sf_seek_words) <= SF_OFF_TRANSFER + 65536, "words, then what recover.c lists");

/* recover.c */
s64 sf_fork_follower(u32 slot);
s64 sf_try_arm(void);
void sf_arm(void);
void sf_die_with_launcher(void);
s64 sf_filter(void);
void sf_send(void);
s64 sf_receive(void);
s64 sf_readable(s64 yes);
s64 sf_remap(void);
void sf_heap_settle(u32 nr, const u64 a[6]);
void sf_heap_is(u64 brk, u64 end);
int sf_epoch_due(u64 brings);
NORETURN void sf_keep(void);
void sf_snapshot(void);
s64 sf_rpc(u32 op, u64 a, u64 b, u64 c, u64 d, u64 e);

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

#include "thread.h"
#include "event.h"

#endif
