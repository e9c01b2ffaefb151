/* Thread: what is kept of a thread while it does not run.
 *
 * The table lies behind the agent's own addresses, in memory that is treated as the program's: it is
 * hashed by memory checks, copied by transplants, and a snapshot has it. What the running thread needs
 * is in struct sf_mirror and goes to its entry when it is parked.
 */
#ifndef SF_THREAD_H
#define SF_THREAD_H

#define SF_THREADS SF_OWN_END
#define SF_THREADS_MAX 128u
#define SF_THREAD_BYTES 16384u
/* Behind them: signals that were sent to one of them (queued.c). */
#define SF_QUEUED (SF_THREADS + SF_THREAD_BYTES * (SF_THREADS_MAX + 1))
#define SF_QUEUED_MAX 1024u
#define SF_QUEUED_BYTES (9u * SF_THREAD_BYTES)
#define SF_THREADS_BYTES (SF_QUEUED - SF_THREADS + SF_QUEUED_BYTES)
#define SF_NOBODY 0xffffu /* app.current: every thread waits */
/* Numbers of threads: above those of processes (PID_MAX_LIMIT is 1 << 22), so a call that the agent does not answer itself
 * fails with ESRCH; below 1 << 28, which the clock of a thread has room for (clock_getcpuclockid(3)); and those of one process
 * alone, since owners stand in locks that processes share: two that are 2,064,384 apart would have the same. */
#define SF_TID_FIRST 0x400000u
#define SF_TID_OF(pid, n) (SF_TID_FIRST + ((pid) << 7 | (n)) % ((1u << 28) - SF_TID_FIRST))
_Static_assert(SF_THREADS_MAX <= 1u << 7, "a number for each thread of a process");

enum sf_thread_state { SF_TH_FREE, SF_TH_RUNS, SF_TH_READY, SF_TH_FUTEX, SF_TH_CALL };

struct sf_thread {
	u32 state; /* enum sf_thread_state */
	u32 tid;
	u32 nr; /* the call in which it waits */
	u32 bitset;
	u64 word;     /* the futex for which it waits */
	u32 pi;       /* ... to be its owner */
	u32 uid;      /* who has sent the last of `pending` */
	u64 deadline; /* CLOCK_MONOTONIC in nanoseconds, or 0 */
	u64 retry;    /* the same: when a call that cannot be polled for is tried again */
	u64 since;    /* order in which threads became ready, or began to wait */
	u64 pending;  /* signals to this thread alone, or that the process has got and this thread takes */
	u64 fs_base;
	struct sf_regs regs;
	/* Of struct sf_mirror, while another thread runs. */
	u64 mask, wait_mask, alt_sp, alt_size, done_of_call, clear_tid, robust, quantum, cold;
	u32 has_wait_mask, alt_flags, yields, spins;
	struct sf_parts parts;
	char name[16]; /* of its own, or empty (prctl(2), PR_SET_NAME) */
	/* futex.c */
	u64 woken;   /* the word for which it was woken last, and that has changed between that and its turn */
	u64 place;   /* order in which it began to wait for `word` */
	u32 found;   /* what was there when it was woken */
	u32 in_vain; /* not 0: it waits for that one again, and has done nothing else */
	u8 fp[] __attribute__((aligned(1024)));
};
_Static_assert(offsetof(struct sf_thread, fp) == 1024, "room for every processor's vector state behind it");

/* What comes before the running thread goes on (app.turn): why it is looked at, and behind SF_TURN_SPENT the events that a result
 * brings along. Each is taken out as it begins. Whoever begins one of them again, since it has become another replica, has what
 * comes behind it from here, as the others do. */
#define SF_TURN_GIVE 1u   /* it waits, has ended, or gives way */
#define SF_TURN_SIGNAL 2u /* signals wait for it */
#define SF_TURN_LOOK 4u   /* others may be able to go on */
#define SF_TURN_SPENT 8u  /* it gives way because its slice is over */
#define SF_TURN_MORE 16u
#define SF_TURN_SETTLE 32u
#define SF_TURN_EPOCH 64u

/* Operations of futex(2). */
#define FUTEX_CMD 0x7fu /* without PRIVATE and CLOCK_REALTIME */
#define FUTEX_PRIVATE 0x80u
enum {
	FUTEX_WAIT,
	FUTEX_WAKE,
	FUTEX_REQUEUE = 3,
	FUTEX_CMP_REQUEUE,
	FUTEX_WAKE_OP,
	FUTEX_LOCK_PI,
	FUTEX_UNLOCK_PI,
	FUTEX_TRYLOCK_PI,
	FUTEX_WAIT_BITSET,
	FUTEX_WAKE_BITSET,
	FUTEX_WAIT_REQUEUE_PI,
	FUTEX_CMP_REQUEUE_PI,
	FUTEX_LOCK_PI2
};

/* thread.c */
int sf_is_thread(u32 nr, const u64 a[6]);
u64 sf_thread_odd(u64 flags);
int sf_thread_is_named(const u64 a[6]);
int sf_thread_answers(const u64 a[6]);
s64 sf_thread_call(u32 nr, const u64 a[6], struct sf_regs *, u64 *aux, int leads);
struct sf_thread *sf_thread_at(u32 index);
struct sf_thread *sf_thread_now(void);
void sf_thread_ready(struct sf_thread *);
u64 sf_thread_order(void);
u32 sf_thread_top(void);
u32 sf_thread_id(void);
int sf_threads_may_wake(void);
void sf_thread_parks(struct sf_regs *, u32 nr, u64 deadline, u64 retry);
void sf_thread_spends(u32 nr);
u32 sf_threads_due(void);
void sf_threads_look(struct sf_regs *);
void sf_threads_asked(void);
void sf_threads_preempt(struct sf_regs *);
void sf_threads_yield(struct sf_regs *);
void sf_turn_brings(u32 flags);
void sf_turn(struct sf_regs *);
void sf_thread_translate(u32 nr, u64 call[7]);
int sf_thread_names(u64 tid);
int sf_thread_takes(u32 nr, const struct sf_call *, const u64 a[6]);
int sf_thread_diverts(const struct sf_siginfo *);
u64 sf_thread_blocks(u32 tid, u64 signals);
u64 sf_threads_block(u64 mask);
int sf_thread_is_sent(const u64 a[6]);
void sf_threads_keep_current(void);
void sf_threads_leave_locks(void);
void sf_threads_heard(u64 now);
void sf_threads_lead(void);

/* futex.c */
s64 sf_futex(const u64 a[6], u64 *deadline, int leads);
u32 sf_futex_wake(u64 word, u32 n, u32 bitset);
void sf_futex_goes_on(struct sf_thread *);
void sf_futex_shared(void);
void sf_futex_leave(u64 robust, u32 tid);

/* parked.c: threads that wait for a word of several processes */
int sf_parked_sound(void);
int sf_parked_takes(u64 key, int again);
int sf_parked_granted(u32 index);
int sf_parked_begins(u64 key, u32 bitset);
int sf_parked_stands(u64 *key);
int sf_parked_leaves(u32 index);
void sf_parked_ends(u32 index);
s64 sf_parked_hear(const u64 a[6], s64 r);
void sf_parked_wake_one(u64 word);
int sf_is_alive(u32 pid);

/* owner.c: locks of processes that were killed */
int sf_owner_died(const u64 a[6]);
int sf_owner_slice(const u64 a[6], u64 call[7], u64 left, s64 limit[2]);
void sf_owner_note(const u64 a[6]);
void sf_owner_mark(void);

/* queued.c: signals to one thread */
s64 sf_queued_add(u32 tid, const struct sf_siginfo *);
int sf_queued_has(u32 tid, s32 signo);
int sf_queued_take(u32 tid, s32 signo, struct sf_siginfo *to);
void sf_queued_forget(u32 tid);
void sf_queued_forget_all(void);

/* fifo.c: a FIFO that is opened without waiting for its other end */
enum sf_fifo { SF_FIFO_NONE, SF_FIFO_WRITES, SF_FIFO_READS };
enum sf_fifo sf_fifo_kind(u32 nr, const u64 call[7]);
s64 sf_fifo_reader(u32 nr, const u64 call[7]);
int sf_fifo_waits(void);
void sf_fifo_number(u32 nr, u64 call[7], u64 fd);
void sf_fifo_opened(s64 fd);
void sf_fifo_leave(u32 index);
void sf_fifo_born(void);

/* try.c: calls of the leader that do not wait while other threads could go on */
#define SF_WOULD_WAIT (-514)
enum sf_try { SF_TRY_GO, SF_TRY_PARK, SF_TRY_CHECK, SF_TRY_ANSWERED };
enum sf_try sf_try(u32 nr, u64 call[7]);
int sf_is_ready(u64 fd, u16 events);
void sf_try_on(u64 deadline);
u64 sf_try_deadline(void);
s64 sf_tried(u32 nr, const u64 a[6], s64 r);
int sf_splice_waits(u32 nr, const u64 a[6], s32 *fd, u16 *events);
s64 sf_try_answer(void); /* of a call that need not be made */
int sf_try_cut(void); /* the call has moved a part, and the rest is another event */
u64 sf_futex_left(u64 op, u64 limit);
void sf_try_until(u64 *deadline, u64 *retry);

/* take.c: calls that take from what other processes take from as well */
enum sf_try sf_take(u32 nr, u64 call[7]);
int sf_took(u64 fd, s64 r);
int sf_take_ends(s32 signo, const struct sf_siginfo *i);
int sf_take_is_late(void);

#endif
