/* State: what a replica keeps, apart from the log that all of them share (abi.h).
 *
 * What must be equal in all replicas lies in struct sf_mirror; what differs by role lies in struct sf_me, and what entry code
 * reaches before it has a stack in struct sf_tls. A transplant copies the first and never the second.
 */
#ifndef SF_STATE_H
#define SF_STATE_H

#include "ground/types.h"
#include "layout/abi.h"
#include "faults/flip.h"
#include "layout/tls.h"
#include "regs.h"

struct sf_tls {
	u64 rcx, desc, rsp, stack, rip, token, secret, selector, resume, inside, abort, ea, scratch, leaving, budget, aim;
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
_Static_assert(offsetof(struct sf_tls, seek_any) == TLS_SEEK_ANY, "crates/replica/src/supervise/alignment.rs");
_Static_assert(offsetof(struct sf_tls, seek_less) == TLS_SEEK_LESS, "crates/replica/src/supervise/alignment.rs");
_Static_assert(sizeof(struct sf_tls) == 4096, "a page");
_Static_assert(offsetof(struct sf_tls, token) == TLS_TOKEN, "gate.S");
_Static_assert(offsetof(struct sf_tls, selector) == TLS_SELECTOR, "gate.S");
_Static_assert(offsetof(struct sf_tls, resume) == TLS_RESUME, "gate.S");
_Static_assert(offsetof(struct sf_tls, abort) == TLS_ABORT, "gate.S");
_Static_assert(offsetof(struct sf_tls, ea) == TLS_EA, "crates/replica/src/modules.rs");
_Static_assert(offsetof(struct sf_tls, scratch) == TLS_SCRATCH, "gate.S");
_Static_assert(offsetof(struct sf_tls, leaving) == TLS_LEAVING, "gate.S");
_Static_assert(offsetof(struct sf_tls, budget) == TLS_BUDGET, "crates/replica/src/supervise/alignment.rs");
_Static_assert(offsetof(struct sf_tls, aim) == TLS_AIM, "crates/replica/src/supervise/alignment.rs");

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

/* What the program has asked the kernel to remember about its process (kernel_state.c). */
#define SF_KEPT_CALLS 32
#define SF_KEPT_TIMERS 16
#define SF_KEPT_BYTES 64
struct sf_kernel_state {
	struct sf_kernel_call {
		u32 nr;
		u32 bytes_n;
		u64 a[5];
		u8 bytes[SF_KEPT_BYTES]; /* what its pointer arguments point to */
	} call[SF_KEPT_CALLS];
	u32 calls;
	u32 lost; /* calls that found no room */
	struct sf_kernel_timer {
		s64 interval[2], first[2]; /* seconds and nanoseconds as last set; first is 0: disarmed */
		u64 value;
		s32 signo, notify;
		u32 clock, absolute;
		u32 id; /* as the program knows it */
		u32 used;
		u32 tid; /* the thread that gets its signals, or 0 */
		u32 unused;
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
#define SF_M_OWN 2048u   /* a view of a file that the program has made in a tmpfs: another program of the tree may map it */
#define SF_M_COMMON 4096u /* a view that a copy of this process has as well: they take turns (domain.c) */
#define SF_M_READS 8192u /* opened for reading alone, or sealed: no mapping of it becomes writable */
#define SF_M_MEMORY 16384u /* its file is in a tmpfs, which hears of a store at a fault alone */
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
#define SF_SEGMENTS_MAX 256u
#define SF_MADE_MAX 16u
#define SF_BY_NAME 2u
#define SF_BEHIND_MAX 128u
struct sf_segment {
	u64 start, end;
	u64 dev, ino; /* of the file that the leader's is, or 0 */
	u32 prot;
	u32 real; /* 0: private, as long as there is no copy; SF_BY_NAME: one that may be mapped once more */
	u64 what; /* equal in all processes that have it, and further on by as much as it begins further on; or 0 */
};

/* A parent in vfork(2): what it goes on with when the child has left (spawn.c). */
struct sf_spawn {
	u32 active, has_wait_mask;
	u32 threads, signal; /* of the parent; which it gets at the child's end */
	u32 apart;           /* the child has something of the kernel's that its parent has not */
	s32 pidfd;           /* -1: nobody has asked for one */
	u64 mask, wait_mask;
	u64 alt_sp, alt_size;
	u32 alt_flags, pdeathsig;
	struct sf_regs regs;
	struct sf_action action[SF_SIGNALS + 1];
	struct sf_kernel_state kept;
};

/* A call of the program that the agent makes of several (pair/parts.c). */
#define SF_PART_BUFFERS 128u
struct sf_parts {
	u32 stage; /* enum part, or 0 */
	u32 quiet; /* signals wait until it is through */
	u32 nr;    /* of the program's call */
	u32 held;  /* flags of a result whose signal waits for the parts behind it */
	u32 over, buffer;
	u32 rests, spare; /* other threads may have their turn before the next one */
	u64 a[6];  /* its arguments */
	u64 plan;  /* how much, and how */
	u64 moved, n; /* bytes; those of this round */
	u64 place; /* in the file */
	u64 at;    /* the buffer, or the mapping */
	s64 answer;
	struct sf_siginfo info;
};

/* What the program has as a mapping of a protected file (pair/shown.c). */
#define SF_SHOWN_MAX 128u
#define SF_SHOWN_FILES 64u
struct sf_shown {
	u64 start, end, offset; /* `offset`: of `start` in the file */
	u32 prot;
	u32 file; /* of a shared one: which, and 1 */
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
	struct sf_kernel_state kept;
	u64 done_of_call;    /* bytes, of one that was cut short: calls.c, rest_of_call */
	/* thread.c; of the thread that runs: */
	u64 clear_tid, robust;
	u32 threads; /* alive; 0: the program has never made one */
	u32 current; /* index of the one that runs, or SF_NOBODY */
	u32 turn;    /* SF_TURN_* */
	u32 spent;   /* events since it went on */
	u64 quantum; /* passes of planted payloads after which it gives way, or 0 */
	u32 yields;  /* not 0: that was used up since the last call */
	u32 spins;   /* not 0: this thread waits for others by looking at memory (thread.c) */
	u32 counts;  /* not 0: there is such a budget; of one thread alone: how often it was used up since a signal */
	u32 locks;   /* payloads that stand before instructions that may take one (thread.c) */
	u32 aimed;   /* at which of them a slice was to end last */
	u64 cold;    /* bit per lock that the running thread has not come by */
	u32 blind; /* the leader finds no procfs: memory is not compared (epoch.c) */
	u32 maps, map_files; /* entries of `map` in use, those with a ref */
	u32 map_settled;     /* pages of those that are settled */
	u32 room; /* which limits of address space are higher in the kernel (room.c) */
	u64 map_stores;      /* bytes of those that may hold stores */
	u32 domain;          /* it shares writable memory with other processes (domain.c) */
	u64 dead_word;       /* a lock that its owner has died with, which is not marked yet, or 0 (owner.c) */
	u32 dead_tid;
	u32 preempts; /* another thread has its turn once all signals have been heard */
	u32 segments, segments_lost; /* entries of `segment` in use; what happened to one could not be followed */
	u32 made_n;
	struct sf_made {
		u64 bytes;
		s32 id;
		u32 spare;
	} made[SF_MADE_MAX]; /* segments of System V that the program has made */
	struct sf_segment segment[SF_SEGMENTS_MAX];
	u32 behinds, behind_spare;
	struct sf_behind {
		u64 at, site; /* where a payload comes back to, and the instruction of the program's that it stands before (behind.c) */
	} behind[SF_BEHIND_MAX];
	struct sf_spawn spawn;
	struct sf_map map[SF_MAPS_MAX];
	struct sf_parts parts;            /* of the thread that runs */
	u64 part_buffer[SF_PART_BUFFERS]; /* addresses; bit 0: in use */
	u32 shown_n;
	u32 pages; /* of its own, at the newest memory check of a pair */
	struct sf_shown shown[SF_SHOWN_MAX];
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
	u32 childless;  /* ... and its child that stood in for it (spawn.c), which is made anew */
	u32 strays;     /* a child of this leader's has another number than the program knows (ward.c) */
	u32 tsc_traps; /* rdtsc and cpuid fault: something was mapped that nobody could patch */
	u64 together_until; /* event at which it leaves the core where all replicas stand for a while, or 0 (memory.c) */
	u32 stepping;
	u32 restarted; /* a transplant replaced the registers of the event in progress */
	u32 poison; /* SF_SPOILED: this replica's own execution of an agreed call failed, and it must lose the next vote */
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
	u32 seek;  /* instructions left on the way to where another replica stands (align.c) */
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
	u32 counted, pages_then; /* pages of the newest digest, and app.pages as it was in that of the snapshot */
};

/* Replicas that have found the same other result are one claim, with which they can outvote a leader that went astray. Of room each has its
 * own, and who has none is no witness: its claim is like nobody's. */
#define SF_SPOILED 1u
#define SF_SPOILED_ALONE 2u

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

#endif
