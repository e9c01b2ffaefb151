/* Number: a process of the tree whose leader was killed, and made again, may have another number than its program's neighbours
 * know.
 *
 *   a call that names a process ──► the launcher ──► the number of its leader by now
 *   a signal to a leader that is dead, and is to be made again ──► the launcher ──► the new leader
 *
 * The launcher is asked about the first once there is such a number in the tree, and about the second when the kernel knows
 * no such process, or one that is dying.
 *
 * Invariants
 *  1. Leaders alone ask: followers take the answer of the call from the log.
 *  2. A signal to whoever is no process of the tree, or will not be made again, has the kernel's answer.
 *
 * Not covered: a process group that such a leader leads, the number of the sender that a signal tells, descriptors of processes
 * (pidfd.c), and a signal that the leader is taking in the moment of its death.
 * See kill(2), pidfd_open(2); docs/concepts/replication.md, "Children".
 */
#include "agent.h"
#include <asm/errno.h>

#define SIGKILL 9
#define SI_USER 0
#define SI_TKILL (-6)
#define POLLIN 1

/* What the kernel knows a process of the tree by. Negative numbers are groups. */
u64 sf_number_of(u64 pid)
{
	if (!load(&G->renumbered) || (s32)pid <= 1)
		return pid;
	const s64 now = sf_rpc(SF_RPC_NAMED, (u32)pid, 0, 0, 0, 0);
	return now > 1 ? (u64)now : pid;
}

/* Whether a process has ended, or is on its way: signals to it are dropped from its SIGKILL on. A kernel that cannot be asked
 * for the memory of a dying process, which lives on otherwise (process_mrelease(2)), says it later. */
static int is_dying(u64 pid)
{
	const s64 fd = sys2(NR_pidfd_open, pid, 0);
	if (fd < 0)
		return fd == -ESRCH;
	const struct {
		s32 fd;
		short events, came;
	} look = { (s32)fd, POLLIN, 0 };
	const s64 r = sys2(NR_process_mrelease, fd, 0);
	const int dies = r == 0 || r == -ESRCH || r == -EAGAIN || sys3(NR_poll, &look, 1, 0) == 1;
	sys1(NR_close, fd);
	return dies;
}

INLINE int is_own_number(u64 pid)
{
	return (u32)pid == G->leader_pid || (app.threads && sf_thread_names(pid));
}

/* A call has sent a signal, perhaps to another process than this one, by the number in `to`, and ended with `ret`. */
s64 sf_number_sent(u32 nr, const u64 a[6], u64 to, s64 ret)
{
	const int to_a_thread = nr == NR_tgkill || nr == NR_rt_tgsigqueueinfo;
	const u64 signal = a[to_a_thread ? 2 : 1];
	struct sf_siginfo i = { .code = nr == NR_kill ? SI_USER : SI_TKILL };
	u64 value = 0;
	if ((ret && ret != -ESRCH) || signal > SF_SIGNALS || signal == SIGKILL || (s32)a[0] <= 1 || is_own_number(a[0]) ||
	    (to_a_thread && a[0] != a[1]) || (!ret && !signal) || !is_dying(to))
		return ret;
	if (nr == NR_rt_sigqueueinfo || nr == NR_rt_tgsigqueueinfo) {
		memcpy(&i, (const void *)a[to_a_thread ? 3 : 2], sizeof i); /* the kernel has read it */
		value = i.words[1];
	}
	return sf_rpc(SF_RPC_LATE, a[0], signal, (u64)(s64)i.code, value, 0) == 1 ? 0 : ret;
}
