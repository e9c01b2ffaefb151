/* Repair: copies of a replica, snapshots, and how one becomes another. */
#ifndef SF_REPAIR_H
#define SF_REPAIR_H

#include "layout/state.h"

/* recover.c: how replicas come to be, at the start and after a fault */
s64 sf_affinity(u32 nr, const u64 a[6]);
void sf_follow_limit(u32 nr, const u64 a[6]);
s64 sf_make_keeper(void);
void sf_as_event(struct sf_regs *);
NORETURN void sf_again(struct sf_regs *);
s64 sf_fork_follower(u32 slot);
s64 sf_try_arm(void);
void sf_arm(void);
void sf_die_with_launcher(void);
s64 sf_filter(void);
void sf_send(void);
s64 sf_receive(void);
s64 sf_remap(void);
s64 sf_watch_again(u64 n);
NORETURN void sf_keep(void);
s64 sf_rpc(u32 op, u64 a, u64 b, u64 c, u64 d, u64 e);

/* epoch.c: compare memory that no event has shown yet, and keep a way back */
void sf_epoch(struct sf_regs *);
int sf_epoch_before_fork(struct sf_regs *);
struct sf_hash sf_memory_hash(int dirty_only);
s64 sf_readable(s64 yes);
int sf_epoch_due(u64 brings);
void sf_snapshot(void);
int sf_first_snapshot(void);
void sf_tracking_born(void);

/* align.c: to where another replica stands */
void sf_pause_here(struct rt_frame *);
void sf_step(struct rt_frame *);
void sf_seek_no_more(struct rt_frame *);
int sf_steps_on(struct rt_frame *);
void sf_found(struct sf_regs *, u64 payload);

#endif
