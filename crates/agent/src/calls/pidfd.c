/* Pidfd: descriptors of processes, which are those of leaders.
 *
 * The leader alone opens and uses them, as all descriptors. Whom one names the kernel says in procfs: the launcher has to
 * know of a SIGKILL that the program itself sends, whose end is the child's (ward.c).
 *
 * Not covered: a child that was made again, or whose parent was. The descriptor names the process that was killed, or one
 * that is not the parent's child.
 * See pidfd_open(2), pidfd_send_signal(2).
 */
#include "agent.h"

/* The number of the process behind a descriptor, as the leader knows it; 0: none, or it has ended, or nobody can tell. */
s32 sf_pidfd_names(u64 fd)
{
	static const char key[] = "\nPid:\t";
	const u64 length = sizeof key - 1;
	char text[512], path[40] = "/proc/self/fdinfo/", digits[12];
	u32 n = 0, at = 18;
	for (u32 v = (u32)fd; n == 0 || v; v /= 10)
		digits[n++] = (char)('0' + v % 10);
	while (n)
		path[at++] = digits[--n];
	const s64 info = sys3(NR_open, path, 02000000 /* O_CLOEXEC */, 0);
	if (info < 0)
		return 0;
	const s64 got = sys3(NR_read, info, text, sizeof text);
	sys1(NR_close, info);
	s32 pid = 0;
	for (s64 i = 0; i + (s64)length < got; i++) {
		if (memcmp(text + i, key, length) != 0)
			continue;
		for (i += (s64)length; i < got && text[i] >= '0' && text[i] <= '9'; i++)
			pid = pid * 10 + (text[i] - '0');
	}
	return pid;
}
