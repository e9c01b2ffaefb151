/* Calls: what the program asks of the kernel. */
#ifndef SF_CALLS_H
#define SF_CALLS_H

#include "tables/tables.h"
#include "vote/vote.h"

/* calls.c: one system call of the program, from claim to return */
void sf_on_syscall(struct sf_regs *);
void sf_more_signals(struct sf_regs *);
u64 sf_rest_of_vector(u32 nr, const u64 a[6], u64 *n);
int sf_cut_vector(u64 *at, u64 *n, u64 room);
s64 sf_fd_name(u64 fd, char *to, u32 room);
int sf_stops_itself(const struct sf_call *, u32 nr, const u64 a[6]);
void sf_leaders_file(u64 fd, char to[40]);
void sf_mapped_by_all(void);
const struct sf_result *sf_result_flags(struct sf_event *, u32 flags);
NORETURN COLD void sf_end(u32 end, u32 nr, s64 value, const struct sf_regs *);
extern const struct sf_call sf_calls[];

/* exec.c: the program becomes another one (execve(2)) */
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
s64 sf_orphan(u64 share);
const struct sf_call *sf_spawn_row(const struct sf_call *, struct sf_call *own, u32 nr, const u64 a[6]);
#define SF_LEFT_OUT (1ull << 63) /* crates/agent/src/lib.rs, cloned */
u64 sf_spawn_odd(u32 nr, const u64 a[6]);
int sf_spawn_before(struct sf_regs *, u32 nr, const u64 a[6]);
void sf_spawn_hook(struct sf_event *, struct sf_regs *, const struct sf_call *, u32 nr, const u64 a[6]);
s64 sf_spawn_nobody(u64 group, u64 number);
NORETURN void sf_spawned(s64 pid);
NORETURN void sf_spawn_goes_on(struct sf_event *, const struct sf_result *);
NORETURN void sf_spawn_dies(void);
void sf_spawn_send(void);
s64 sf_spawn_receive(void);
void sf_spawn_again(void);

/* pidfd.c: descriptors of processes */
s32 sf_pidfd_names(u64 fd);

/* number.c: processes of the tree whose leaders have other numbers by now */
u64 sf_number_of(u64 pid);
s64 sf_number_sent(u32 nr, const u64 a[6], u64 to, s64 ret);

/* ward.c: a child and its parent, of which one goes on under a new leader while the other lives */
void sf_wards_look(void);
s64 sf_wards_adopt(void);
void sf_ward_names(struct sf_siginfo *);
int sf_ward_takes(struct sf_siginfo *);
int sf_ward_may_show(u32 nr);
void sf_ward_asks(u32 nr, const u64 a[6], u64 to[6]);
int sf_ward_peeks(u32 nr, const u64 own_args[6], u64 look[6]);
s64 sf_ward_found(u32 nr, u64 args[6]);
s64 sf_ward_answers(u32 nr, const u64 a[6], s64 ret);
int sf_ward_parent(s64 *pid);
u64 sf_ward_reaches(u64 pid, u64 signal);

/* entropy.c: instructions and clocks whose answer differs from run to run or core to core */
void sf_on_entropy(struct sf_regs *, u64 desc);
int sf_clock(u32 nr, u64 *a, s64 *ret);

/* kernel_state.c: what the kernel holds for the program */
void sf_kernel_here(void);
void sf_kernel_bequeath(u8 *to);
void sf_kernel_inherit(const u8 *from);
extern const u64 sf_kernel_calls[8];
#define SF_IN_SET(set, nr) ((set)[(nr) / 64 & 7] >> ((nr) & 63) & 1)
void sf_kernel_note(u32 nr, const u64 a[6], s64 ret);
s64 sf_kernel_restore(void);
void sf_kernel_siginfo(struct sf_siginfo *);
void sf_timer_translate(u64 call[7]);
u32 sf_timer_thread(u32 id);
u64 sf_timers_block(void);
void sf_kernel_delivered(const struct sf_siginfo *);
int sf_kernel_answers(u32 nr, const u64 a[6], s64 *ret);
void sf_kernel_translate(u32 nr, u64 call[7]);
s64 sf_kernel_result(u32 nr, const u64 a[6], s64 ret);
s64 sf_kernel_join(void);

/* room.c: a limit of the program's own address space */
void sf_room_before(u64 call[7]);
void sf_room_after(u32 nr, const u64 a[6], s64 ret);
void sf_room_follow(u32 nr, const u64 a[6], u64 new);
s64 sf_room_again(const void *limit);
int sf_room_is_of(u32 resource);
#define SF_ROOM_CALL(nr) ((nr) == NR_setrlimit || (nr) == NR_getrlimit || (nr) == NR_prlimit64)

/* wait.c: calls that wait */
#define SF_WAITS 1u       /* may wait for something other than a disk */
#define SF_WAITS_ENDS 2u  /* a handler ends it, whatever its flags (signal(7)) */
#define SF_WAITS_LIMIT 4u /* may have a relative time limit */
extern const u8 sf_waits[512];
void sf_limit_begin(u64 seq, u32 nr, u64 call[7]);
void sf_limit_again(u64 call[7]);
s64 sf_limit_end(s64 ret);
s64 sf_limit_cut(u64 seq, u32 nr, const u64 a[6]);
u32 sf_waits_early(u32 nr, const u64 a[6]);
u64 sf_now(void); /* CLOCK_MONOTONIC, nanoseconds */

#endif
