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
