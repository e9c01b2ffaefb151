/* Alarm: timers (timerfd(2)) and watches of names (inotify(7)) in a pair.
 *
 *   primary    timerfd_settime, and a read of one that came due ──► log: the time that remains until it comes due (next)
 *   secondary  its own timer, set to come due in as long
 *   primary    inotify_add_watch ──► log: the number of the watch
 *   secondary  the same name of its own disk; the number has to be the same, as the kernel gives them in turn
 *
 * The remaining time is no time of either host's clock, so it holds where those differ. Each read tells it anew: the two do not drift.
 * The secondary's watches hear of what its own program has done, and of what others have done on its host. What the program has read
 * is taken from them; an event that only one host had may come once more, or not, after a loss.
 *
 * A site that joins watches what the survivor's kernel says is watched, by the same numbers, and its next one is the survivor's next.
 *
 * Invariant: what cannot be made alike is the primary's alone (F_FOREIGN).
 * See timerfd_create(2), inotify(7), proc_pid_fdinfo(5).
 */
#include "agent.h"
#include "pair/storage.h"

#include <asm/errno.h>

#define SECOND 1000000000ull
struct span {
	u64 sec, nsec;
};
struct setting {
	struct span every, first; /* struct itimerspec */
};

int sf_alarm_call(u32 nr)
{
	return nr == NR_timerfd_settime || nr == NR_inotify_add_watch || nr == NR_inotify_rm_watch;
}

static int is_ready_alarm(u64 fd)
{
	struct {
		s32 fd;
		u16 events, revents;
	} p = { (s32)fd, 1 /* POLLIN */, 0 };
	return sys3(NR_poll, &p, 1, 0) > 0;
}

/* Nanoseconds until the timer comes due (next); 1 where it is due and nobody has read that; 0: it is not set. */
u64 sf_alarm_remains(u64 fd)
{
	struct setting now = { 0 };
	if (sys2(NR_timerfd_gettime, (u32)fd, &now) < 0)
		return 0;
	return is_ready_alarm(fd) ? 1 : now.first.sec * SECOND + now.first.nsec;
}

static s64 set_alarm(u64 fd, struct span every, u64 remains)
{
	const struct setting to = { every, { remains / SECOND, remains % SECOND } };
	return sys4(NR_timerfd_settime, (u32)fd, 0, &to, 0);
}

/* The secondary: the primary's was set, or has been read. */
void sf_alarm_follow(u32 nr, const u64 a[6], u64 remains)
{
	struct setting to = { 0 };
	s64 r = nr == NR_timerfd_settime ? (s64)sf_user_bytes(&to, a[2], sizeof to) : sys2(NR_timerfd_gettime, (u32)a[0], &to);
	const struct span runs = nr == NR_timerfd_settime ? to.first : to.every;
	if (!remains && (runs.sec | runs.nsec)) /* it is due at this moment */
		remains = 1;
	if (r < 0 || set_alarm(a[0], to.every, remains) < 0)
		sf_fd_class[(u32)a[0]] = F_FOREIGN;
}

/* The secondary: what the primary has read of its watches is not heard again here. */
void sf_watch_follow(const u64 a[6], s64 ret)
{
	static u8 events[4096];
	while (ret > 0 && is_ready_alarm((u32)a[0])) {
		const s64 n = sys3(NR_read, (u32)a[0], events, ret < (s64)sizeof events ? (u64)ret : sizeof events);
		if (n <= 0)
			break; /* the next one has a longer name */
		ret -= n;
	}
}

/* The survivor's, for a site that joins. Which clock it goes by the launcher adds (crates/replica/src/site/open.rs). */
s64 sf_alarm_give(struct sf_held *h)
{
	struct setting now;
	s64 r = sys2(NR_timerfd_gettime, (u32)h->fd, &now);
	if (r < 0)
		return r;
	const u64 every = now.every.sec * SECOND + now.every.nsec, remains = sf_alarm_remains((u32)h->fd);
	memcpy(h->own, &every, sizeof every);
	memcpy(h->own + sizeof every, &remains, sizeof remains);
	return 0;
}

/* The joiner. */
s64 sf_alarm_take(const struct sf_held *h)
{
	u64 every, remains;
	memcpy(&every, h->own, sizeof every);
	memcpy(&remains, h->own + sizeof every, sizeof remains);
	s64 own = sys2(NR_timerfd_create, h->place, 02000000 /* TFD_CLOEXEC */);
	if (own < 0)
		return own;
	const s64 r = set_alarm((u64)own, (struct span){ every / SECOND, every % SECOND }, remains);
	return r < 0 ? r : own;
}

/* By descriptor: the newest number of a watch. The kernel gives them in turn. */
static s32 newest[FDS_MAX];

void sf_watches_begin(u64 fd, s64 number)
{
	if (fd < FDS_MAX)
		newest[fd] = (s32)number;
}

void sf_watch_added(u64 fd, s64 number)
{
	if (fd < FDS_MAX && number > newest[fd])
		newest[fd] = (s32)number;
}

void sf_watches_copied(u64 fd, u64 to)
{
	if (fd < FDS_MAX && to < FDS_MAX)
		newest[to] = newest[fd];
}

/* The survivor's, for a site that joins. What is watched the launcher adds (crates/replica/src/site/open.rs). */
s64 sf_watches_give(struct sf_held *h)
{
	if (is_ready_alarm((u32)h->fd))
		return -EAGAIN; /* the joiner has not heard of it */
	h->place = (u64)newest[h->fd];
	return 0;
}

#define NUMBERS_MAX 65536 /* of watches that have come and gone: each costs the joiner two calls */

/* Numbers are given until this one was the last. What is heard meanwhile the program has not caused. */
static s64 spend_numbers(u64 own, s64 *last, s64 until)
{
	static u8 heard[4096];
	while (*last < until) {
		const s64 r = sys3(NR_inotify_add_watch, own, "/proc/self/fdinfo", 0x800 /* IN_MOVE_SELF */);
		if (r != *last + 1)
			return r < 0 ? r : -EINVAL;
		*last = r;
		sys2(NR_inotify_rm_watch, own, r);
		while (sys3(NR_read, own, heard, sizeof heard) > 0)
			;
	}
	return 0;
}

/* The joiner. `list`: number, mask and path of each watch, in the order of the numbers. */
s64 sf_watches_take(const struct sf_held *h, const u8 *list)
{
	static u8 heard[4096];
	s64 last = 0, r = h->place > NUMBERS_MAX ? -E2BIG : 0, own = sys1(NR_inotify_init1, 02004000 /* IN_CLOEXEC, IN_NONBLOCK */);
	if (own < 0)
		return own;
	for (u64 at = 0; r >= 0 && at + 9 <= h->text_len;) {
		const u32 *watch = (const u32 *)(list + at);
		const char *path = (const char *)(watch + 2);
		if ((r = spend_numbers((u64)own, &last, (s64)watch[0] - 1)) < 0)
			break;
		r = sys3(NR_inotify_add_watch, own, path, watch[1] | 0x02000000 /* IN_DONT_FOLLOW */);
		if (r >= 0 && r != (s64)watch[0])
			r = -EINVAL;
		last = r;
		for (at += 8; at < h->text_len && list[at]; at++)
			;
		at = (at + 4) & ~3ull;
	}
	if (r >= 0)
		r = spend_numbers((u64)own, &last, (s64)h->place);
	while (r >= 0 && sys3(NR_read, own, heard, sizeof heard) > 0)
		;
	if (r >= 0)
		return own;
	sys1(NR_close, own);
	return r;
}
