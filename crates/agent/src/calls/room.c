/* Room: a limit of address space that the program sets for itself (setrlimit(2), RLIMIT_AS) is one of its own memory.
 *
 * The log and the agent count to it in the kernel, and are larger than what small servers allow themselves (vsftpd: 200 MiB). So
 * the kernel's limit is higher by that, and what the program reads is lower again.
 *
 * Invariant: app.room tells, equally in all replicas, which of the two limits are higher.
 *
 * Not covered: a child of vfork, whose limits are those of the next program (crates/replica, limits.rs, `room_in`).
 */
#include "agent.h"

#define RLIMIT_AS 9u
#define NONE (~0ull) /* RLIM_INFINITY */
/* As crates/replica/src/limits.rs, `least`: the log, and what lies beside it. */
#define ROOM (SF_SHARED_BYTES + (64ull << 20))
#define OF_SOFT 1u
#define OF_HARD 2u

struct room_limit {
	u64 soft, hard;
};

/* Whether it is about the program's own address space. */
static int room_is_meant(u32 nr, const u64 a[6])
{
	if (app.spawn.active)
		return 0;
	if (nr == NR_prlimit64)
		return (u32)a[1] == RLIMIT_AS && ((s32)a[0] == 0 || (u32)a[0] == G->leader_pid);
	return (nr == NR_setrlimit || nr == NR_getrlimit) && (u32)a[0] == RLIMIT_AS;
}

static u64 more(u64 limit)
{
	return limit < NONE - ROOM ? limit + ROOM : NONE;
}

/* What the kernel is asked for in place of `l`; which limits are higher then. A hard limit that was never raised stays where
 * it is, since only some may raise it. */
static u32 room_beside(struct room_limit *l)
{
	struct room_limit now = { NONE, NONE };
	u32 which = (l->soft != NONE ? OF_SOFT : 0) | (l->hard != NONE ? OF_HARD : 0);
	if (l->soft > l->hard)
		return 0; /* EINVAL, says the kernel */
	sys4(NR_prlimit64, 0, RLIMIT_AS, 0, &now);
	if (more(l->hard) > now.hard)
		which &= ~OF_HARD;
	else
		l->hard = more(l->hard);
	if (more(l->soft) > l->hard)
		which &= ~OF_SOFT;
	l->soft = more(l->soft) < l->hard ? more(l->soft) : l->hard;
	return which;
}

/* Before a call of this process's own: 1, `to` is what it sets. The limit lies at `from`. */
static int room_reads(u64 from, struct room_limit *to, u32 *which)
{
	if (!from || sf_user_bytes(to, from, sizeof *to) < 0)
		return 0;
	*which = room_beside(to);
	return 1;
}

static struct {
	struct room_limit l;
	u32 which;
	u32 sets;
} room;

/* Leader: before the call, with its number and arguments. */
void sf_room_before(u64 call[7])
{
	const u32 nr = (u32)call[0], at = nr == NR_prlimit64 ? 3 : 2;
	room.sets = nr != NR_getrlimit && room_is_meant(nr, call + 1) && room_reads(call[at], &room.l, &room.which);
	if (room.sets)
		call[at] = (u64)&room.l;
}

static void lower(u64 *limit, u32 is_higher)
{
	if (is_higher && *limit != NONE)
		*limit = *limit > ROOM ? *limit - ROOM : 0;
}

/* Leader: after it. What was in force before is told as the program knows it. */
void sf_room_after(u32 nr, const u64 a[6], s64 ret)
{
	struct room_limit old;
	const u64 told = nr == NR_getrlimit ? a[1] : nr == NR_prlimit64 ? a[3] : 0;
	if (ret != 0 || !room_is_meant(nr, a))
		return;
	if (told && app.room && sf_user_bytes(&old, told, sizeof old) == 0) {
		lower(&old.soft, app.room & OF_SOFT);
		lower(&old.hard, app.room & OF_HARD);
		sf_user_put(told, &old, sizeof old);
	}
	if (room.sets)
		app.room = room.which;
}

/* A follower, after the leader has: its own limit. */
void sf_room_follow(u32 nr, const u64 a[6], u64 new)
{
	struct room_limit l;
	u32 which = 0;
	if (!room_is_meant(nr, a) || !room_reads(new, &l, &which))
		return;
	sys4(NR_prlimit64, 0, RLIMIT_AS, &l, 0);
	app.room = which;
}

/* A leader made anew sets what the program has set. */
s64 sf_room_again(const void *limit)
{
	struct room_limit l;
	memcpy(&l, limit, sizeof l);
	room_beside(&l);
	return sys4(NR_prlimit64, 0, RLIMIT_AS, &l, 0);
}

int sf_room_is_of(u32 resource)
{
	return resource == RLIMIT_AS;
}
