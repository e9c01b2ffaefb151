/* Recover: how replicas come to be, at the start and after a fault.
 *
 * A follower is a copy of the leader, made by the leader while everybody is paused:
 *
 *   leader ──clone3(NEWPID|NEWNS[|NEWUSER], PARENT, FILES)──► init (pid 1 of its namespace)
 *   init   ──clone3(FILES, set_tid = the leader's number)───► follower
 *
 * so a follower has the leader's pid number in a namespace of its own and shares the one
 * descriptor table. Init gives its copy of the program's memory back, waits for its only
 * child and takes the namespace with it when it goes. All are children of the launcher and
 * die with it.
 *
 * See clone(2), pid_namespaces(7), user_namespaces(7), prctl(2) PR_SET_PDEATHSIG.
 */
#include "agent.h"
#include <asm/errno.h>

#define CLONE_FS 0x200ull
#define CLONE_FILES 0x400ull
#define CLONE_PARENT 0x8000ull
#define CLONE_NEWNS 0x20000ull
#define CLONE_NEWUSER 0x10000000ull
#define CLONE_NEWPID 0x20000000ull
#define SIGCHLD 17
#define PR_SET_PDEATHSIG 1
#define MS_REC 16384
#define MS_PRIVATE (1 << 18)
#define MS_NOSUID 2
#define MS_NODEV 4
#define MS_NOEXEC 8

enum { NR_write = 1, NR_open = 2, NR_close = 3, NR_munmap = 11, NR_clone3 = 435, NR_wait4 = 61, NR_prctl = 157,
       NR_mount = 165, NR_exit_group = 231, NR_futex = 202, NR_getuid = 102, NR_getgid = 104, NR_getppid = 110 };

struct clone_args {
	u64 flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

/* Before a process has its backstop its calls go through sf_raw, which the backstop of the
 * parent does not follow (a clone starts without user dispatch). */
static s64 raw6(u64 nr, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
	u64 call[7] = { nr, a, b, c, d, e, f };
	return sf_raw(call);
}

/* From here on a call passes only with the selector at 0 (gate.S). */
void sf_arm(void)
{
	if (G->options & SF_O_SUD)
		raw6(NR_prctl, 59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, 0, 0, (u64)&tls.selector, 0);
	if ((G->options & SF_O_SECCOMP) && me.slot == 0 && !load(&G->go)) {
		/* instruction_pointer names the byte after the call: our own, or a trap. */
		u32 ok[] = { (u32)(u64)sf_gate_return };
		(void)ok;
	}
	tls.selector = 1;
	sf_signals_start();
}

static u32 digits(char *at, u64 v)
{
	char b[24];
	u32 n = 0, i;
	do
		b[n++] = '0' + v % 10;
	while (v /= 10);
	for (i = 0; i < n; i++)
		at[i] = b[n - 1 - i];
	return n;
}

static void write_file(const char *path, const char *text, u64 n)
{
	s64 fd = raw6(NR_open, (u64)path, 1, 0, 0, 0, 0);
	if (fd < 0)
		return;
	raw6(NR_write, (u64)fd, (u64)text, n, 0, 0, 0);
	raw6(NR_close, (u64)fd, 0, 0, 0, 0, 0);
}

static void map_id(const char *path, u64 id)
{
	char t[64];
	u32 n = digits(t, id);
	t[n++] = ' ';
	n += digits(t + n, id);
	t[n++] = ' ';
	t[n++] = '1';
	write_file(path, t, n);
}

static void die_with_parent(u64 parent_gone)
{
	raw6(NR_prctl, PR_SET_PDEATHSIG, 9, 0, 0, 0, 0);
	if ((u64)raw6(NR_getppid, 0, 0, 0, 0, 0, 0) == parent_gone)
		raw6(NR_exit_group, 0, 0, 0, 0, 0, 0);
}

/* pid 1 of a follower's namespace: holds nothing, waits for one child. */
NORETURN static void be_init(u32 slot)
{
	raw6(NR_munmap, 0, SF_BASE, 0, 0, 0, 0);
	raw6(NR_munmap, SF_SHARED + SF_SHARED_BYTES, 0x7ffffffff000ull - SF_SHARED - SF_SHARED_BYTES, 0, 0, 0, 0);
	for (;;) {
		s32 status = 0;
		s64 pid = raw6(NR_wait4, (u64)-1, (u64)&status, 0, 0, 0, 0);
		if (pid == -EINTR)
			continue;
		if (pid > 0)
			G->slot[slot].exit_status = status;
		if (pid == -ECHILD || (u64)pid == G->leader_pid)
			break;
	}
	raw6(NR_exit_group, 0, 0, 0, 0, 0, 0);
	__builtin_trap();
}

static void become(u32 slot)
{
	me.slot = slot;
	me.role = SF_FOLLOWER;
	me.pending_n = 0;
	me.reset_pending = 0;
	me.interruptible = 0;
	struct sf_replica *own = &G->slot[slot];
	own->cmd_ack = own->cmd_seq;
	own->next = me.next;
	store(&own->done, me.next);
	sf_arm();
}

/* 0 in the leader, -1 in the copy, another negative errno on failure. */
s64 sf_fork_follower(u32 slot)
{
	u64 ns = G->options & SF_O_PRIV_NS ? CLONE_NEWPID | CLONE_NEWNS : 0;
	if (ns && (G->options & SF_O_USER_NS))
		ns |= CLONE_NEWUSER;
	s64 uid = raw6(NR_getuid, 0, 0, 0, 0, 0, 0), gid = raw6(NR_getgid, 0, 0, 0, 0, 0, 0);
	struct clone_args ca = { .flags = ns | CLONE_FILES | CLONE_PARENT };
	u32 armed = tls.selector;
	s64 pid = raw6(NR_clone3, (u64)&ca, sizeof ca, 0, 0, 0, 0);
	tls.selector = armed;
	if (pid < 0)
		return pid;
	if (pid > 0) {
		G->slot[slot].init_pid = (s32)pid;
		return 0;
	}
	if (!ns) {
		die_with_parent(1);
		become(slot);
		return -1;
	}
	die_with_parent(0xffffffff); /* the launcher is outside the namespace: number 0 */
	if (ns & CLONE_NEWUSER) {
		write_file("/proc/self/setgroups", "deny", 4);
		map_id("/proc/self/uid_map", (u64)uid);
		map_id("/proc/self/gid_map", (u64)gid);
	}
	raw6(NR_mount, (u64) "", (u64) "/", 0, MS_REC | MS_PRIVATE, 0, 0);
	raw6(NR_mount, (u64) "proc", (u64) "/proc", (u64) "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, 0, 0);
	s32 number = (s32)G->leader_pid;
	struct clone_args cb = { .flags = CLONE_FILES, .exit_signal = SIGCHLD, .set_tid = (u64)&number, .set_tid_size = 1 };
	pid = raw6(NR_clone3, (u64)&cb, sizeof cb, 0, 0, 0, 0);
	if (pid < 0) {
		G->slot[slot].cmd_ret = pid;
		raw6(NR_exit_group, 121, 0, 0, 0, 0, 0);
	}
	if (pid > 0)
		be_init(slot);
	die_with_parent(0);
	become(slot);
	return -1;
}

/* Ask the launcher; everybody else waits for the result of the event in progress. */
s64 sf_rpc(u32 op, u64 a, u64 b, u64 c, u64 d, u64 e)
{
	G->rpc_arg[0] = a;
	G->rpc_arg[1] = b;
	G->rpc_arg[2] = c;
	G->rpc_arg[3] = d;
	G->rpc_arg[4] = e;
	store(&G->rpc_done, 0);
	store(&G->rpc, op);
	__atomic_fetch_add(&G->launcher_bell, 1, __ATOMIC_SEQ_CST);
	sys3(NR_futex, &G->launcher_bell, 1, 1);
	while (!load(&G->rpc_done))
		sys4(NR_futex, &G->rpc_done, 0, 0, 0);
	return G->rpc_ret;
}

/* The launcher places replicas on cores; the program sees the mask it was started with. */
s64 sf_affinity(u32 nr, const u64 a[6])
{
	u32 n = G->affinity_bytes;
	if (nr == 203)
		return 0;
	if (a[1] < n || (a[1] & 7))
		return -EINVAL;
	memcpy((void *)a[2], G->affinity, n);
	return n;
}

/* Limits hold for every replica, except the one that would kill followers by CPU time. */
void sf_follow_limit(u32 nr, const u64 a[6])
{
	u64 what = nr == 302 ? a[1] : a[0], new = nr == 302 ? a[2] : a[1];
	if (new && (u32)what != 0 /* RLIMIT_CPU */ && (nr != 302 || a[0] == 0 || a[0] == G->leader_pid))
		sf_sys(302, 0, what, new, 0, 0, 0);
}

void sf_epoch(struct sf_regs *r)
{
	(void)r;
}

void sf_send(void)
{
}

void sf_receive(void)
{
}
