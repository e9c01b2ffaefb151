/* Pair: a program on two hosts, each with files of its own. */
#ifndef SF_PAIR_H
#define SF_PAIR_H

#include "vote/vote.h"

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
int sf_pair_maps(u32 nr, const u64 a[6]);
const struct sf_call *sf_pair_row(u32 nr, const u64 a[6], const struct sf_call *, struct sf_call *own);
s64 sf_pair_lead(int asked);
void sf_pair_speak(void);

/* crew.c: the processes of a pair's program */
void sf_pair_knows(s32 number, s32 own);
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
void sf_pair_end_turn(void);
void sf_pair_bequeath(void);
void sf_pair_exec(struct sf_event *, u32 nr, const u64 a[6]);

/* ipc.c: what it has made of System V */
int sf_ipc_kind(u32 nr);
int sf_ipc_names(u32 nr, const u64 a[6]);
int sf_ipc_numbered(int kind, s32 number, s32 own);
s32 sf_ipc_own(int kind, s32 number);
s32 sf_ipc_number(int kind, s32 own, int made);
void sf_ipc_born(void);
s64 sf_ipc_undoes(void);
void sf_ipc_before(u32 nr, const u64 a[6]);
int sf_ipc_changes(u32 nr, const u64 a[6]);
int sf_ipc_tries(u64 seq, u32 nr);
int sf_ipc_again(u64 seq, u32 nr, s64 *ret);
s64 sf_ipc_result(u32 nr, const u64 a[6], s64 ret);
s64 sf_ipc_follows(const struct sf_call *, u32 nr, const u64 a[6], const struct sf_result *);

/* parts.c: a call that is made of several */
int sf_parts_are(u32 nr, const u64 a[6]);
int sf_parts_call(u32 nr);
void sf_parts_born(void);
struct sf_result *sf_parts_plan(struct sf_event *, u32 nr, const u64 a[6]);
void sf_parts_begin(struct sf_regs *, s64 plan, u64 place);
void sf_parts_go_on(struct sf_regs *, s64 ret, u32 flags, const struct sf_siginfo *);
int sf_parts_rest(struct sf_regs *);
u32 sf_parts_over(u32 flags, struct sf_siginfo *);
void sf_parts_cut(struct sf_parts *, struct sf_regs *, u64 done);

/* shown.c: protected files that are mapped */
void sf_shown_born(void);
void sf_shown_bore(u32 child);
void sf_shown_leaves(void);
s64 sf_shown_room(u64 fd, int shared, int writes);
void sf_shown_begins(u64 at, const u64 a[6], int shared);
void sf_shown_changed(u32 nr, const u64 a[6], s64 ret);
int sf_shown_answers(u32 nr, const u64 a[6]);
void sf_shown_applies(const struct sf_result *);

/* join.c: the descriptors of a program that goes on alone, for a site that comes back */
s64 sf_pair_give(void);
s64 sf_pair_take(void);
s64 sf_pair_pool(void);

#endif
