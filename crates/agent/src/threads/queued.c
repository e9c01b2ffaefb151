/* Queued: signals that were sent to one thread, in the order in which they came.
 *
 * Threads are the agent's, so the kernel cannot keep their signals apart. A mask of each thread says which are pending
 * (struct sf_thread); what came with each stands here, behind the threads. A real-time signal stands here as often as it
 * was sent, any other once (signal(7), "Queueing and delivery semantics").
 *
 * Invariants
 *  1. Every replica adds and takes at the same events: it is memory like the program's, and compared as that.
 *  2. A signal that found no room has its bit alone, and its thread is told the number and the sender.
 *
 * Not covered: RLIMIT_SIGPENDING; there is room for SF_QUEUED_MAX signals of all threads together.
 * See signal(7), sigqueue(3), tgkill(2).
 */
#include "agent.h"
#include <asm/errno.h>

struct queued {
	u32 tid, spare;
	struct sf_siginfo info;
};
struct queue {
	u64 n;
	struct queued signal[SF_QUEUED_MAX];
};
#define Q ((struct queue *)SF_QUEUED)
_Static_assert(sizeof(struct queue) <= SF_QUEUED_BYTES, "thread.h");

static u32 length_queued(void)
{
	ASSERT(Q->n <= SF_QUEUED_MAX);
	return (u32)Q->n;
}

static u32 find_queued(u32 tid, s32 signo)
{
	u32 i = 0;
	while (i < length_queued() && (Q->signal[i].tid != tid || Q->signal[i].info.signo != signo))
		i++;
	return i;
}

s64 sf_queued_add(u32 tid, const struct sf_siginfo *info)
{
	const u32 n = length_queued();
	if (n == SF_QUEUED_MAX)
		return -EAGAIN;
	Q->signal[n] = (struct queued){ .tid = tid, .info = *info };
	Q->n = n + 1;
	return 0;
}

int sf_queued_has(u32 tid, s32 signo)
{
	return find_queued(tid, signo) < length_queued();
}

/* What is left behind the end is cleared: it is compared. */
static void remove_queued(u32 i)
{
	const u32 n = length_queued() - 1;
	for (; i < n; i++)
		Q->signal[i] = Q->signal[i + 1];
	memset(&Q->signal[n], 0, sizeof Q->signal[n]);
	Q->n = n;
}

/* The first of that number. 0: there is none. */
int sf_queued_take(u32 tid, s32 signo, struct sf_siginfo *to)
{
	const u32 i = find_queued(tid, signo);
	if (i == length_queued())
		return 0;
	*to = Q->signal[i].info;
	remove_queued(i);
	return 1;
}

/* The thread has ended. */
void sf_queued_forget(u32 tid)
{
	for (u32 i = length_queued(); i-- > 0;)
		if (Q->signal[i].tid == tid)
			remove_queued(i);
}

/* In a child: signals are pending for the one that they were sent to (fork(2)). */
void sf_queued_forget_all(void)
{
	memset(Q->signal, 0, length_queued() * sizeof *Q->signal);
	Q->n = 0;
}
