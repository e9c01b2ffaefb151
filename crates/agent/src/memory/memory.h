/* Memory: the program's mappings, and what it has in common with others. */
#ifndef SF_MEMORY_H
#define SF_MEMORY_H

#include "layout/state.h"
#include "tables/tables.h"

/* memory.c: calls that every replica executes on its own address space, at equal addresses */
s64 sf_mlockall(u64 flags); /* mlockall(2), which generic treatment would have lock the log as well */
s64 sf_memory_call(u32 nr, const u64 a[6], s64 forced);
void sf_stand_apart(void);
void sf_apply_patch(const u8 *plan, u32 len);
void sf_clock_traps(void);
void sf_heap_settle(u32 nr, const u64 a[6]);
void sf_heap_is(u64 brk, u64 end);

/* behind.c: what payloads stand before that enter the agent */
void sf_behind_note(u64 site);
u64 sf_behind_site(u64 at);

/* private.c: physical copies of memory that replicas would otherwise share */
void sf_privatise(u64 from, u64 to, u64 prot, int file);
s64 sf_privatise_all(void);

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
void sf_shared_zeros(const u64 a[6], u64 at);
s64 sf_shared_allows(u32 nr, const u64 a[6]);
s64 sf_shared_changed(u32 nr, const u64 a[6], s64 ret);
int sf_shared_before(struct sf_regs *, const struct sf_call *, u32 nr, const u64 a[6]);
int sf_shared_fault(const struct sf_regs *);
int sf_shared_waits_in_vain(const u64 a[6]);
void sf_shared_hash(struct sf_hash *);
void sf_shared_undo(void);
u64 sf_shared_part(u64 from, u64 to, int *view);
s64 sf_with_own_table(void (*)(void));
s64 sf_shared_restore(const struct sf_mirror *from, const u64 *list, u64 n);
NORETURN void sf_die_agreed(struct sf_regs *, u32 s);
int sf_shared_all_written(const struct sf_regs *);
int sf_shared_own(void);
int sf_shared_stays_alone(void);
int sf_shared_in_view(u64 at, u64 len);
u64 sf_shared_word(u64 at);
void sf_shared_translate(u64 call[7]);
void sf_shared_windows(int inherited);
void sf_shared_unheld(void);
void sf_shared_unsettle(void);
void sf_shared_hand_over(struct sf_regs *);
int sf_shared_may_join(const void **table, u32 *bytes, int own, s64 *why);
s64 sf_shared_joins(const void *table, u32 bytes, int own);
int sf_shared_is_segment(struct sf_shared_file *);

/* settle.c: small files that others write to as well */
u32 sf_settle_wanted(u32 flags, u64 len);
void sf_settle_merge(u64 *to, const u64 *from, const u64 *base);
int sf_settle_differs(const struct sf_map *, u64 page);
u32 sf_settle_due(void);
void sf_settle_written(const struct sf_map *, u64 page);
void sf_settle(struct sf_regs *);
int sf_settle_there(struct sf_regs *);

/* segment.c: files of /dev/shm that processes of a tree map by their names */
void sf_segment_opened(u32 nr, const u64 a[6], s64 fd);
void sf_segment_handed(u32 nr, const u64 a[6]);
int sf_segment_of_site(u64 fd);
int sf_segment_asks(const u64 a[6], struct sf_shared_file *, u32 *flags);
int sf_segment_wanted(u64 fd, struct sf_shared_file *, u64 end, u64 how);
s64 sf_segment_map(const u64 a[6], s64 forced, const struct sf_shared_file *);
s64 sf_segments_anew(void);
int sf_segment_made(const u64 a[6]);
int sf_segment_is_made(const u64 a[6]);
int sf_is_tmpfs(u64 fd);
s64 sf_segment_make(const u64 a[6]);
s64 sf_segment_replaces(u64 from, u64 to, u64 offset, u32 prot, const struct sf_shared_file *);

/* written.c: calls that change a file which processes share */
int sf_written_makes(const struct sf_event *, u32 nr, const u64 a[6], s64 *ret);
void sf_written_tell(struct sf_result *);
void sf_written_done(const struct sf_result *, u32 nr, const u64 a[6]);
int sf_segment_copies(u64 fd, struct sf_shared_file *);

/* domain.c: processes that share writable memory */
int sf_domain_takes_turn(void);
void sf_domain_awaits_turn(u64 ticket);
void sf_domain_has_named(void);
u32 sf_domain_names(void);
s64 sf_domain_changes(u32 nr, const u64 a[6]);
s64 sf_domain_init(void);
void sf_domain_changed(u32 nr, const u64 a[6], s64 ret);
int sf_domain_word(u64 at);
u64 sf_domain_key(u64 at);
int sf_domain_before_fork(struct sf_regs *);
int sf_domain_of_own(struct sf_regs *);
int sf_domain_ready(struct sf_regs *, const struct sf_call *, u32 nr, const u64 a[6]);
void sf_domain_enter(void);
int sf_domain_has(u64 dev, u64 ino);
int sf_domain_refuses(void);
int sf_domain_waits(u32 nr, const u64 a[6]);
void sf_domain_call(const struct sf_call *, u32 nr, const u64 a[6], struct sf_regs *);
void sf_domain_after(struct sf_regs *);
void sf_domain_spends(void);
int sf_domain_lacks(struct sf_regs *);
void sf_baton_due(void);
void sf_domain_made(const u64 a[6], s64 id, u32 made);
void sf_segment_opens(u32 nr, u64 call[7]);
int sf_segment_opens_again(u32 nr, u64 call[7], s64 ret);
void sf_domain_named(const u64 a[6], s64 ret);
s64 sf_domain_attach(const u64 a[6], s64 forced);
s64 sf_domain_detach(const u64 a[6]);
s64 sf_domain_adopt(const struct sf_map *, const struct sf_shared_file *);
u64 sf_domain_id(void);
void sf_domain_tell(void);
void sf_domain_give(u64 *tickets, u64 *turn);
void sf_domain_take(u64 tickets, u64 turn);
void sf_baton_give(void);
void sf_domain_leave(void);
int sf_baton_wanted(void);
void sf_baton(struct sf_regs *);
void sf_baton_back(struct sf_regs *);
s64 sf_baton_inherit(u32 slot);
void sf_baton_is_of(u32 slot);
void sf_domain_of_site(u32 site);

#endif
