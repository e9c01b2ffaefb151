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
#define PR_SET_DUMPABLE 4
#define PAGE 4096ull
#define USER_END 0x7ffffffff000ull
#define MADV_DONTNEED 4
#define MS_REC 16384
#define MS_SLAVE (1 << 19)
#define MS_NOSUID 2
#define MS_NODEV 4
#define MS_NOEXEC 8

struct clone_args {
	u64 flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

/* Before a process has its backstop its calls go through sf_raw, which the backstop of the
 * parent does not follow (a clone starts without user dispatch). */
struct sock_filter {
	u16 code;
	u8 jt, jf;
	u32 k;
};
#define LD_ABS(at) { 0x20 /* BPF_LD|BPF_W|BPF_ABS */, 0, 0, at }
#define JEQ(v, yes, no) { 0x15 /* BPF_JMP|BPF_JEQ|BPF_K */, yes, no, v }
#define RET(v) { 0x06 /* BPF_RET|BPF_K */, 0, 0, v }

/* The kernel tells a filter the address after the call instruction: ours, or a trap. Kept
 * across clone and exec, so nothing this process starts escapes it. */
s64 sf_filter(void)
{
	const u32 low = 8, high = 12; /* struct seccomp_data.instruction_pointer, little-endian */
	struct sock_filter f[] = {
		LD_ABS(high),
		JEQ((u32)((u64)sf_gate_return >> 32), 0, 5),
		LD_ABS(low),
		JEQ((u32)(u64)sf_gate_return, 2, 0),
		JEQ((u32)(u64)sf_raw_return, 1, 0),
		JEQ((u32)(u64)sf_sigreturn_return, 0, 1),
		RET(0x7fff0000 /* SECCOMP_RET_ALLOW */),
		RET(0x00030000 /* SECCOMP_RET_TRAP */),
	};
	struct {
		u16 len;
		const struct sock_filter *f;
	} p = { sizeof f / sizeof *f, f };
	s64 r = sf_raw6(NR_seccomp, 1 /* SECCOMP_SET_MODE_FILTER */, 0, (u64)&p, 0, 0, 0);
	if (r == -EACCES) { /* not privileged: no setuid program can be started from here on */
		sf_raw6(NR_prctl, 38 /* PR_SET_NO_NEW_PRIVS */, 1, 0, 0, 0, 0);
		r = sf_raw6(NR_seccomp, 1, 0, (u64)&p, 0, 0, 0);
	}
	return r;
}

/* From here on a call passes only with the selector at 0 (gate.S). */
s64 sf_try_arm(void)
{
	s64 r = 0;
	if (G->options & SF_O_SUD)
		r = sf_raw6(NR_prctl, 59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, 0, 0, (u64)&tls.selector, 0);
	tls.selector = 1;
	s64 heard = sf_signals_start();
	return r < 0 ? r : heard;
}

/* What one process could have, all can; one that cannot is no replica. */
void sf_arm(void)
{
	if (sf_try_arm() < 0)
		sf_raw6(NR_exit_group, 121, 0, 0, 0, 0, 0);
}

static void write_file(const char *path, const char *text, u64 n)
{
	s64 fd = sf_raw6(NR_open, (u64)path, 1, 0, 0, 0, 0);
	if (fd < 0)
		return;
	sf_raw6(NR_write, (u64)fd, (u64)text, n, 0, 0, 0);
	sf_raw6(NR_close, (u64)fd, 0, 0, 0, 0, 0);
}

static void map_id(const char *path, u64 id)
{
	char t[64];
	u32 n = sf_decimal(t, id);
	t[n++] = ' ';
	n += sf_decimal(t + n, id);
	t[n++] = ' ';
	t[n++] = '1';
	write_file(path, t, n);
}

/* The kernel forgets the death signal when credentials change (prctl(2)). */
void sf_die_with_launcher(void)
{
	if ((me.slot == 0 || (G->options & SF_O_PAIR)) && ((G->options & SF_O_TREE) || app.spawn.active))
		return;
	sf_sys(NR_prctl, PR_SET_PDEATHSIG, 9, 0, 0, 0, 0);
	if (sys0(NR_getppid) != (me.slot == 0 ? sf_boot.launcher_pid : me.parent))
		for (;;)
			sys1(NR_exit_group, 0);
}

/* `parent` may have died before it was told to take this process with it. */
static void die_with_parent(s64 parent)
{
	if (sf_raw6(NR_prctl, PR_SET_PDEATHSIG, 9, 0, 0, 0, 0) < 0 || sf_raw6(NR_getppid, 0, 0, 0, 0, 0, 0) != parent)
		sf_raw6(NR_exit_group, 0, 0, 0, 0, 0, 0);
}

/* As die_with_parent for a process from whose namespace the launcher cannot be named: `watch`
 * is a descriptor of it, readable once it is dead (pidfd_open(2)), or negative. */
static void die_with_launcher(s64 watch)
{
	struct {
		s32 fd;
		u16 events, revents;
	} p = { (s32)watch, 1 /* POLLIN */, 0 };
	if (sf_raw6(NR_prctl, PR_SET_PDEATHSIG, 9, 0, 0, 0, 0) < 0)
		sf_raw6(NR_exit_group, 0, 0, 0, 0, 0, 0);
	if (watch < 0)
		return;
	if (sf_raw6(NR_poll, (u64)&p, 1, 0, 0, 0, 0) > 0)
		sf_raw6(NR_exit_group, 0, 0, 0, 0, 0, 0);
	sf_raw6(NR_close, (u64)watch, 0, 0, 0, 0, 0); /* everybody's: there is one table */
}

/* pid 1 of a follower's namespace: holds nothing, hears nothing, waits for one child. */
NORETURN static void be_init(u32 slot)
{
	u64 all = ~0ull;
	sf_raw6(NR_rt_sigprocmask, 2, (u64)&all, 0, 8, 0, 0);
	sf_raw6(NR_munmap, 0, SF_BASE, 0, 0, 0, 0);
	sf_raw6(NR_munmap, SF_SHARED + SF_SHARED_BYTES, 0x7ffffffff000ull - SF_SHARED - SF_SHARED_BYTES, 0, 0, 0, 0);
	for (;;) {
		s32 status = 0;
		s64 pid = sf_raw6(NR_wait4, (u64)-1, (u64)&status, 0, 0, 0, 0);
		if (pid == -EINTR)
			continue;
		if (pid > 0)
			G->slot[slot].exit_status = status;
		if (pid == -ECHILD || (u64)pid == G->leader_pid)
			break;
	}
	sf_raw6(NR_exit_group, 0, 0, 0, 0, 0, 0);
	__builtin_trap();
}

/* The event that this replica has come to last, or will come to at once since it starts it again. */
static u64 place_recover(void)
{
	return me.doing == SF_D_NOTHING ? me.next - 1 : me.next;
}

static void become(u32 slot)
{
	me.slot = slot;
	me.role = SF_FOLLOWER;
	me.pending_n = 0;
	me.heard = 0;
	me.made = 0;
	me.reborn = me.renumbered = 0;
	if (me.reset_pending) /* the leader begins the log anew at its next event: read it from there */
		me.base = me.next;
	me.reset_pending = 0;
	me.interruptible = 0;
	me.together_until = 0; /* the launcher has given it a core */
	sf_flip_rearm();
	struct sf_replica *own = &G->slot[slot];
	own->cmd_ack = own->cmd_seq;
	own->next = place_recover();
	own->own_events = app.own_events;
	me.own_event = 0;
	me.parent = (s32)sf_raw6(NR_getppid, 0, 0, 0, 0, 0, 0);
	sf_inherit_claims(0);
	sf_baton_is_of(0);
	store(&own->done, me.next);
	sf_arm();
	s64 r = sf_privatise_all();
	if (r < 0 && !load(&G->go))
		sf_setup_failed(SF_STEP_PRIVATE, r);
	if (r < 0) /* no replica */
		sf_raw6(NR_exit_group, 121, 0, 0, 0, 0, 0);
}

#define COPY 1 /* no errno, and no success either */

/* 0 in the leader, COPY in the copy, a negative errno on failure. */
static s64 fork_follower(u32 slot, u64 ns)
{
	s64 uid = sf_raw6(NR_geteuid, 0, 0, 0, 0, 0, 0), gid = sf_raw6(NR_getegid, 0, 0, 0, 0, 0, 0);
	struct clone_args ca = { .flags = ns | CLONE_FILES | CLONE_PARENT };
	u32 armed = tls.selector;
	if (!ns && ((G->options & SF_O_TREE) || app.spawn.active)) { /* its parent is not the launcher */
		s64 copy = sf_orphan(CLONE_FILES);
		tls.selector = armed;
		if (copy == 0) {
			become(slot);
			return COPY;
		}
		if (copy > 0)
			G->slot[slot].init_pid = (s32)copy;
		return copy < 0 ? copy : 0;
	}
	s64 watch = ns ? sf_raw6(NR_pidfd_open, (u64)sf_boot.launcher_pid, 0, 0, 0, 0, 0) : -1;
	s64 pid = sf_raw6(NR_clone3, (u64)&ca, sizeof ca, 0, 0, 0, 0);
	if (pid < 0 && watch >= 0)
		sf_raw6(NR_close, (u64)watch, 0, 0, 0, 0, 0);
	tls.selector = armed;
	if (pid < 0)
		return pid;
	if (pid > 0) {
		G->slot[slot].init_pid = (s32)pid;
		return 0;
	}
	if (!ns) {
		die_with_parent(sf_boot.launcher_pid);
		become(slot);
		return COPY;
	}
	die_with_launcher(watch);
	if (ns & CLONE_NEWUSER) {
		/* Who has given up rights owns no file of its own in procfs (prctl(2)). */
		sf_raw6(NR_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0, 0);
		write_file("/proc/self/setgroups", "deny", 4);
		map_id("/proc/self/uid_map", (u64)uid);
		map_id("/proc/self/gid_map", (u64)gid);
	}
	sf_raw6(NR_mount, (u64) "", (u64) "/", 0, MS_REC | MS_SLAVE, 0, 0); /* what is unmounted outside is here, too */
	sf_raw6(NR_mount, (u64) "proc", (u64) "/proc", (u64) "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, 0, 0);
	s32 number = (s32)G->leader_pid;
	struct clone_args cb = { .flags = CLONE_FILES, .exit_signal = SIGCHLD, .set_tid = (u64)&number, .set_tid_size = 1 };
	pid = sf_raw6(NR_clone3, (u64)&cb, sizeof cb, 0, 0, 0, 0);
	if (pid < 0) {
		G->slot[slot].cmd_ret = pid;
		sf_raw6(NR_exit_group, 121, 0, 0, 0, 0, 0);
	}
	if (pid > 0)
		be_init(slot);
	die_with_parent(1);
	become(slot);
	return COPY;
}

/* 0 in the leader, -1 in the copy, another negative errno on failure. A program that has given
 * up the right to make namespaces makes them as an ordinary user; one in a changed root cannot
 * do that either, and then a follower has another number, which only its own death could show. */
s64 sf_fork_follower(u32 slot)
{
	u64 ns = G->options & SF_O_PRIV_NS ? CLONE_NEWPID | CLONE_NEWNS : 0;
	if (ns && (G->options & SF_O_USER_NS))
		ns |= CLONE_NEWUSER;
	s64 r = fork_follower(slot, ns);
	if (r < 0 && ns && !(ns & CLONE_NEWUSER))
		r = fork_follower(slot, ns | CLONE_NEWUSER);
	if (r < 0 && ns && (me.next > 1 || (G->options & SF_O_NS_OR_NOT))) /* at the start the launcher chooses */
		r = fork_follower(slot, 0);
	return r == COPY ? -1 : r == -1 ? -EAGAIN : r;
}

#define RPC_TRIES 3
static const s64 rpc_look[2] = { 0, 50 * 1000 * 1000 };

/* Ask the launcher; everybody else waits for the result of the event in progress. */
s64 sf_rpc(u32 op, u64 a, u64 b, u64 c, u64 d, u64 e)
{
	const u64 arg[5] = { a, b, c, d, e };
	for (u32 tries = 0; tries < RPC_TRIES; tries++) {
		u64 sum = op;
		for (int i = 0; i < 5; i++) {
			G->rpc_arg[i] = arg[i];
			/* As crates/replica/src/group.rs, `rpc_sum`. */
			sum = ((sum << 13 | sum >> 51) ^ arg[i]) * 0x9e3779b97f4a7c15ull;
		}
		G->rpc_sum = sum;
		G->rpc_ret = G->rpc_ret_inv = 0;
		store(&G->rpc_done, 0);
		store(&G->rpc, op);
		__atomic_fetch_add(&G->launcher_bell, 1, __ATOMIC_SEQ_CST);
		sys3(NR_futex, &G->launcher_bell, 1, 1);
		while (!load(&G->rpc_done))
			sys4(NR_futex, &G->rpc_done, 0, 0, rpc_look);
		s64 ret = G->rpc_ret;
		if (ret == ~G->rpc_ret_inv && ret != SF_RPC_STRUCK)
			return ret;
	}
	ASSERT(0); /* this replica asks wrongly, or cannot hear */
	return -EIO;
}

/* The launcher places replicas on cores; the program sees the mask it was started with. */
s64 sf_affinity(u32 nr, const u64 a[6])
{
	u32 n = G->affinity_bytes;
	if (nr == NR_sched_setaffinity) {
		/* As sched_setaffinity(2) would: the part of the mask that exists, or EINVAL. */
		u8 m[sizeof G->affinity];
		u32 any = 0;
		if (sf_user_bytes(m, a[2], a[1] < n ? a[1] : n) < 0)
			return -EFAULT;
		for (u32 i = 0; i < n; i++) {
			m[i] = i < a[1] ? m[i] & G->allowed[i] : 0;
			any |= m[i];
		}
		if (!any)
			return -EINVAL;
		memcpy(G->affinity, m, n);
		return 0;
	}
	if (a[1] < n || (a[1] & 7))
		return -EINVAL;
	return sf_user_put(a[2], G->affinity, n) ? -EFAULT : (s64)n;
}

/* Limits hold for every replica, except the one that would kill followers by CPU time. */
void sf_follow_limit(u32 nr, const u64 a[6])
{
	u64 what = nr == NR_prlimit64 ? a[1] : a[0], new = nr == NR_prlimit64 ? a[2] : a[1];
	if (sf_room_is_of((u32)what))
		sf_room_follow(nr, a, new);
	else if (new && (u32)what != 0 /* RLIMIT_CPU */ && (nr != NR_prlimit64 || a[0] == 0 || a[0] == G->leader_pid))
		sf_sys(NR_prlimit64, 0, what, new, 0, 0, 0);
}

/* A winner's registers at the start of the disputed event. */
void sf_send(void)
{
	struct sf_transfer *t = TRANSFER;
	t->next = me.next;
	t->base = me.reset_pending ? me.next : me.base; /* the leader begins the log anew at its next event */
	t->regs = *me.regs;
	t->app = app;
	t->doing = me.doing;
	t->doing_desc = me.doing_desc;
	t->tsc_traps = me.tsc_traps;
	t->slot = me.slot;
	t->tls_budget = tls.budget;
	t->tls_aim = tls.aim;
	t->tls_rcx = tls.rcx;
	t->tls_desc = tls.desc;
	t->tls_ea = tls.ea;
	t->holds = me.holds;
	t->ticket = me.ticket;
	t->spent = me.spent;
	t->ready = me.ready;
	t->traps = sf_traps;
	sys2(NR_arch_prctl, 0x1003 /* ARCH_GET_FS */, &t->fs_base);
	t->fp_bytes = sf_fp_bytes();
	if (me.fault_frame) /* vector state went to the kernel's frame */
		memcpy(t->fp, (void *)sf_frame_fp(me.fault_frame), t->fp_bytes);
	else
		sf_fp_save(t->fp);
	sf_spawn_send();
}

/* The loser becomes what the winner was: the launcher has copied memory already. Negative when
 * a new leader could not be given the rights of the old one. */
/* Its part of a turn, what the agent keeps for the program, and the event that it stands at. */
static void stand_as(const struct sf_transfer *t)
{
	app = t->app;
	me.own_event = 0;
	G->slot[me.slot].own_events = app.own_events;
	me.doing = (u32)t->doing;
	me.doing_desc = t->doing_desc;
	tls.budget = t->tls_budget;
	tls.aim = t->tls_aim;
	tls.rcx = t->tls_rcx;
	tls.desc = t->tls_desc;
	tls.ea = t->tls_ea;
	me.holds = (u32)t->holds;
	me.ticket = t->ticket;
	me.spent = (u32)t->spent;
	me.ready = t->ready;
	me.courteous = 0;
}

static void take_vectors(const struct sf_transfer *t)
{
	if (me.fault_frame) {
		u8 *fp = (u8 *)sf_frame_fp(me.fault_frame), marks[48];
		memcpy(marks, fp + 464, sizeof marks); /* struct _fpx_sw_bytes: without it the kernel restores x87 and SSE alone */
		memcpy(fp, t->fp, t->fp_bytes);
		memcpy(fp + 464, marks, sizeof marks);
	} else
		sf_fp_load(t->fp);
}

/* A process that was none of the program's before: what the kernel kept for that one is asked for again. */
static s64 begins_anew(const struct sf_transfer *t)
{
	me.fresh = 0;
	sf_baton_is_of((u32)t->slot);
	sf_traps = t->traps;
	if (t->tsc_traps) {
		sf_boot.vdso_ok = 0;
		me.fake_tsc = sf_tsc();
		me.tsc_traps = 1;
	}
	s64 r = G->options & SF_O_PAIR ? sf_kernel_join() : sf_kernel_restore();
	if (r >= 0 && me.slot == 0)
		r = sf_wards_adopt();
	if (r >= 0 && app.spawn.active)
		r = sf_spawn_receive();
	me.readable = (s32)sys1(NR_prctl, 3 /* PR_GET_DUMPABLE */);
	return r;
}

s64 sf_receive(void)
{
	const struct sf_transfer *t = TRANSFER;
	sf_flip_rearm();
	me.next = t->next;
	me.base = t->base;
	me.reset_pending = 0;
	me.made = 0; /* memory is the winner's, not what that call has left */
	me.poison = 0;
	me.heard = 0;
	me.out = 0;
	if (me.next > me.base) {
		const struct sf_result *r = RESULT(me.next - 1 - me.base);
		me.out = (r->out_off + r->out_len + 63) & ~63u;
	}
	stand_as(t);
	if (!me.regs)
		me.regs = &me.fault_regs;
	*me.regs = t->regs;
	me.restarted = 1;
	sys2(NR_arch_prctl, 0x1002 /* ARCH_SET_FS */, t->fs_base);
	take_vectors(t);
	sf_inherit_claims((u32)t->slot);
	G->slot[me.slot].next = place_recover();
	if (me.slot == 0)
		G->base = me.base;
	else
		store(&G->slot[me.slot].done, me.next);
	for (int s = 1; s <= SF_SIGNALS; s++)
		sf_kernel_action(s);
	sf_signals_receive();
	return me.fresh ? begins_anew(t) : 0;
}

/* Registers as an event found them, turned into a machine state that starts it again. */
void sf_as_event(struct sf_regs *r)
{
	switch (me.doing) {
	case SF_D_SYSCALL:
		r->rcx = r->rip;
		r->rip = (u64)sf_entry_syscall;
		break;
	case SF_D_EPOCH:
		me.doing_desc = SF_DESC_EPOCH;
		/* fall through */
	case SF_D_ENTROPY:
		tls.rcx = r->rcx;
		tls.desc = me.doing_desc;
		r->rcx = r->rip;
		r->rip = (u64)sf_entry_entropy;
		break;
	case SF_D_FAULT: /* the instruction faults again */
	case SF_D_NOTHING: break;
	}
}

/* After a transplant: leave whatever this was doing and start the winner's event. */
NORETURN void sf_again(struct sf_regs *r)
{
	me.restarted = 0;
	if (unlikely(me.childless))
		sf_spawn_again();
	sf_as_event(r);
	sf_leave(r);
}

/* A new leader is a copy of the keeper, which is a copy of the program at its exec: give it
 * the mappings of the winner. List: count, stack, end of heap, the kernel's own, then address,
 * length, protection each. The stack
 * and the kernel's own mappings stay; the launcher fills in the bytes. */
s64 sf_remap(void)
{
	const u64 *l = (const u64 *)(SF_SHARED + SF_OFF_TRANSFER + 65536);
	u64 stack = l[1], brk = l[3], kernel = l[4], kernel_end = l[5], low = SF_SHARED + SF_SHARED_BYTES;
	/* A keeper that was made late has a heap, which the kernel shrinks only while it is there. */
	if (brk)
		sys1(NR_brk, app.brk_start);
	sys2(NR_munmap, 0, SF_BASE);
	sys2(NR_munmap, low, SF_DOMAIN - low);
	low = SF_TREE + SF_TREE_BYTES;
	/* Where the kernel's vDSO lies followers have theirs: a hole would be given to a mapping
	 * that they cannot follow. */
	if (kernel >= low && kernel_end <= stack) {
		sys2(NR_munmap, low, kernel - low);
		low = kernel_end;
	}
	sys2(NR_munmap, low, stack - low);
	if (brk)
		sys1(NR_brk, brk);
	sf_heap_is(TRANSFER->app.brk_now, brk);
	/* A site that joins: nobody sends a page of zeros, or one that the program has not, so none of this process's stays. */
	if (G->options & SF_O_PAIR)
		sys3(NR_madvise, stack, l[2] - stack, MADV_DONTNEED);
	for (u64 i = 0; i < l[0]; i++) {
		const u64 *m = l + 6 + 3 * i;
		s64 r = sys6(NR_mmap, m[0], m[1], m[2], 0x2 | 0x20 | 0x10 | 0x4000 /* PRIVATE|ANONYMOUS|FIXED|NORESERVE */, -1, 0);
		if ((u64)r != m[0])
			return r;
	}
	return sf_shared_restore(&TRANSFER->app, l + 6, l[0]);
}

/* A set for polling watches the signals of the process that has told it to (signalfd(2), epoll_ctl(2)), and that one is dead. */
s64 sf_watch_again(u64 n)
{
	const struct sf_polled *list = (const struct sf_polled *)(SF_SHARED + SF_OFF_TRANSFER + 65536);
	for (u64 i = 0; i < n; i++) {
		const struct sf_polled *p = &list[i];
		const struct {
			u32 events;
			u64 data;
		} __attribute__((packed)) event = { p->events, p->data };
		if (sys4(NR_epoll_ctl, p->set, 2 /* EPOLL_CTL_DEL */, p->fd, 0) < 0)
			continue; /* another descriptor's, which was closed */
		const s64 r = sys4(NR_epoll_ctl, p->set, 1 /* EPOLL_CTL_ADD */, p->fd, &event);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Keeper: shares descriptors, cwd and umask with the leader and so outlives its death; its
 * memory is the program at its first instruction. */
NORETURN void sf_keep(void)
{
	static const s64 limit[2] = { 1, 0 };
	struct sf_replica *own = &G->slot[SF_KEEPER_SLOT];
	store(&own->phase, SF_P_PAUSED);
	for (;;) {
		u32 bell = load(&own->bell);
		u64 seq = load(&own->cmd_seq);
		if (seq == own->cmd_ack) {
			sf_raw6(NR_futex, (u64)&own->bell, 0, bell, (u64)limit, 0, 0);
			continue;
		}
		if (own->cmd == SF_C_SPAWN) {
			/* The old number if the kernel lets us, any other if not (clone3 set_tid
			 * needs CAP_CHECKPOINT_RESTORE); the program goes on seeing the old one. */
			s32 number = (s32)G->leader_pid;
			struct clone_args ca = { .flags = CLONE_FILES | CLONE_FS | CLONE_PARENT,
						 .set_tid = (u64)&number,
						 .set_tid_size = 1 };
			s64 pid = sf_raw6(NR_clone3, (u64)&ca, sizeof ca, 0, 0, 0, 0);
			if (pid < 0) {
				ca.set_tid = ca.set_tid_size = 0;
				pid = sf_raw6(NR_clone3, (u64)&ca, sizeof ca, 0, 0, 0, 0);
			}
			if (pid == 0) {
				die_with_parent(sf_boot.launcher_pid);
				me.slot = 0;
				me.role = SF_LEADER;
				me.fresh = me.reborn = 1;
				me.renumbered = (u64)sf_raw6(NR_getpid, 0, 0, 0, 0, 0, 0) != G->leader_pid;
				me.regs = &me.fault_regs;
				sf_arm();
				G->slot[0].cmd_ack = G->slot[0].cmd_seq;
				/* RESUME: become the program at the disputed event. */
				sf_stand_again(&me.fault_regs);
			}
			own->cmd_ret = pid;
		}
		store(&own->cmd_ack, seq);
		__atomic_fetch_add(&G->launcher_bell, 1, __ATOMIC_SEQ_CST);
		sf_raw6(NR_futex, (u64)&G->launcher_bell, 1, 1, 0, 0, 0);
	}
}

/* A keeper that is made late shares no frame with the program any more, which would be copied at the next store. What it has
 * mapped stays: it makes room when it is a leader (sf_remap). */
static void lets_go(void)
{
	const u64 high = SF_DOMAIN + PAGE;
	sf_raw6(NR_madvise, PAGE, SF_BASE - PAGE, MADV_DONTNEED, 0, 0, 0);
	sf_raw6(NR_madvise, high, USER_END - high, MADV_DONTNEED, 0, 0, 0);
}

/* In the leader, at the start or when the last one is gone: leave a keeper behind. Its memory is
 * replaced before it is anybody's; what it knows of itself begins anew. */
s64 sf_make_keeper(void)
{
	struct clone_args ca = { .flags = CLONE_FILES | CLONE_FS | CLONE_PARENT };
	const u32 in_tree = G->options & SF_O_TREE, armed = tls.selector;
	s64 pid = in_tree ? sf_orphan(CLONE_FILES | CLONE_FS) : sf_raw6(NR_clone3, (u64)&ca, sizeof ca, 0, 0, 0, 0);
	tls.selector = armed;
	if (pid == 0) {
		if (!in_tree)
			die_with_parent(sf_boot.launcher_pid);
		u64 all = ~0ull;
		sf_raw6(NR_rt_sigprocmask, 2, (u64)&all, 0, 8, 0, 0);
		if (load(&G->go))
			lets_go();
		u32 traps = me.tsc_traps, replicas = me.replicas;
		memset(&me, 0, sizeof me);
		me.tsc_traps = traps; /* the kernel's switch is inherited */
		me.replicas = replicas;
		me.next = me.base = 1;
		me.slot = SF_KEEPER_SLOT;
		me.role = SF_KEEPER;
		G->slot[SF_KEEPER_SLOT].cmd_ack = G->slot[SF_KEEPER_SLOT].cmd_seq;
		sf_keep();
	}
	G->slot[SF_KEEPER_SLOT].init_pid = (s32)pid;
	return pid;
}
