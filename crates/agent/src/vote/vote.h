/* Vote: how replicas meet at an event. */
#ifndef SF_VOTE_H
#define SF_VOTE_H

#include "ground/ground.h"
#include "tables/tables.h"

/* log.c: rendezvous */
int sf_log_room(u64 seq);
int sf_followers_at(u64 seq, u64 now);
enum sf_rendezvous { SF_AGREED, SF_RESTART };
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
enum sf_rendezvous sf_rendezvous_all(struct sf_event *);           /* before an effect */
enum sf_rendezvous sf_rendezvous_leader(struct sf_event *);        /* follower, before a query's result */
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
void sf_log_anew(void);
void sf_claim_as(const struct sf_claim_record *);

/* args.c: compare and carry what a call's arguments point to, from the rows of calls.def */
s64 sf_user_bytes(void *to, u64 from, u64 n);
#define SF_RIGHTS_MAX 253u /* SCM_MAX_FD, unix(7) */
u64 sf_message_sent(u32 nr, const u64 a[6], u32 i);
u32 sf_message_rights(u64 at, s32 *fd, u32 room);
s64 sf_user_string(char *to, u64 from, u32 room);
void sf_message_again(u64 at);
void sf_digest_args(struct sf_event *, const struct sf_call *, const u64 a[6]);
void sf_collect(struct sf_result *, const struct sf_call *, const u64 a[6], s64 ret);
int sf_collected(const struct sf_result *, const struct sf_call *, const u64 a[6]);
int sf_matches(const struct sf_result *, const struct sf_call *, const u64 a[6], s64 ret, u32 behind);
void sf_scatter(const struct sf_result *, const struct sf_call *, const u64 a[6], s64 ret);

#endif
