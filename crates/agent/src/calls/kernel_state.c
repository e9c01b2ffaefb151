/* Kept: what the kernel holds for the program's process, and how a new leader gets it back.
 *
 * A leader that is outvoted stays the process it is. One that died is made anew from the
 * keeper, which shares descriptors, working directory and umask with it; all else that calls
 * of the program have set for its process is noted here, in log order and equally in every
 * replica, and the new leader makes these calls again:
 *
 *   user and group ids, capabilities, limits, priority, scheduling, prctl options,
 *   personality, session and process group, controlling terminal, memory locking: the calls
 *   themselves, the last of each kind, in order
 *   setitimer, alarm, POSIX timers: armed again with what is left
 *   the process number: kept where the kernel lets us, else translated in both directions
 *
 * Not covered: signals that the kernel had queued and the leader had not taken; ticks of a
 * timer in the moment of the change; CPU clocks, and timers on them, which start anew; owners
 * of F_SETOWN and mq_notify (docs/concepts/replication.md, "Change of leader").
 * See credentials(7), setitimer(2), timer_create(2).
 */
#include "agent.h"
#include <asm/errno.h>

#define SECOND 1000000000ll
#define SIGALRM 14
#define SI_KERNEL 0x80
#define SI_TIMER (-2)
#define TIMER_ABSTIME 1
#define SIGEV_SIGNAL 0
#define SIGEV_THREAD_ID 4
#define PR_SET_PDEATHSIG 1
#define PR_GET_PDEATHSIG 2
#define PR_SET_KEEPCAPS 8
#define PR_SET_NAME 15
#define PR_CAP_AMBIENT 47
#define TIOCSCTTY 0x540e

#define IN(w, nr) ((nr) / 64 == (w) ? 1ull << ((nr) & 63) : 0)
#define WORD(w) \
	(IN(w, NR_ioctl) | IN(w, NR_alarm) | IN(w, NR_setitimer) | IN(w, NR_setuid) | IN(w, NR_setgid) | IN(w, NR_setpgid) | \
	 IN(w, NR_setsid) | IN(w, NR_setreuid) | IN(w, NR_setregid) | IN(w, NR_setgroups) | IN(w, NR_setresuid) | IN(w, NR_setresgid) | \
	 IN(w, NR_setfsuid) | IN(w, NR_setfsgid) | IN(w, NR_capset) | IN(w, NR_rt_sigtimedwait) | IN(w, NR_personality) | \
	 IN(w, NR_setpriority) | IN(w, NR_sched_setparam) | IN(w, NR_sched_setscheduler) | IN(w, NR_mlockall) | IN(w, NR_munlockall) | \
	 IN(w, NR_prctl) | IN(w, NR_setrlimit) | IN(w, NR_chroot) | IN(w, NR_timer_create) | IN(w, NR_timer_settime) | \
	 IN(w, NR_timer_delete) | IN(w, NR_ioprio_set) | IN(w, NR_set_robust_list) | IN(w, NR_prlimit64) | IN(w, NR_sched_setattr))
const u64 sf_kernel_calls[8] = { WORD(0), WORD(1), WORD(2), WORD(3), WORD(4), WORD(5), WORD(6), WORD(7) };

#define K (&app.kept)
#define REAL_TIMERS 3 /* of setitimer(2), first in the table */
_Static_assert(3 + SF_KEPT_TIMERS <= sizeof G->timer_set / sizeof *G->timer_set, "one word for each");

/* The kernel's number of each POSIX timer: the program's own until the leader is a new one. */
static s32 number[3 + SF_KEPT_TIMERS];

/* ---- calls that are made again ---- */

static int self(u64 pid)
{
	return (s32)pid == 0 || (u32)pid == G->leader_pid;
}

/* What a call shares with those that it replaces: its kind, and what of it. */
static u64 kind_of_state(u32 nr, const u64 *a)
{
	switch (nr) {
	case NR_prctl:
		if (a[0] == 24 /* PR_CAPBSET_DROP */ || a[0] == 47 /* PR_CAP_AMBIENT */)
			return (u64)nr << 48 ^ (a[0] << 32 | (a[1] & 0xffff) << 16 | (a[2] & 0xffff));
		return (u64)nr << 48 ^ a[0];
	case NR_setrlimit:
	case NR_prlimit64: return (u64)NR_prlimit64 << 32 | (u32)a[0];
	case NR_ioctl: return (u64)NR_ioctl << 32 | (u32)a[0];
	case NR_sched_setparam:
	case NR_sched_setscheduler:
	case NR_sched_setattr: return NR_sched_setparam;
	case NR_mlockall:
	case NR_munlockall: return NR_mlockall;
	case NR_setpgid:
	case NR_setsid: return NR_setsid;
	case NR_setuid:
	case NR_setgid:
	case NR_setreuid:
	case NR_setregid:
	case NR_setresuid:
	case NR_setresgid:
	case NR_setfsuid:
	case NR_setfsgid:
	case NR_setgroups:
	case NR_capset:
		/* Their order matters, and each may set a part: only its like replaces one. */
		return (u64)nr << 48 ^ sf_mix(sf_mix(a[0], a[1]), a[2]);
	}
	return nr;
}

static void forget_state(u64 kind)
{
	u32 to = 0;
	for (u32 i = 0; i < K->calls; i++)
		if (kind_of_state(K->call[i].nr, K->call[i].a) != kind)
			K->call[to++] = K->call[i];
	for (u32 i = to; i < K->calls; i++)
		memset(&K->call[i], 0, sizeof K->call[i]);
	K->calls = to;
}

/* Notes a call; `from` is the argument that points to `n` bytes, or nowhere. */
#define NOWHERE 5u
static void remember_state(u32 nr, const u64 a[5], u32 from, u64 n)
{
	struct sf_kernel_call c;
	memset(&c, 0, sizeof c);
	c.nr = nr;
	for (u32 i = 0; i < 5; i++)
		c.a[i] = sf_calls[nr].arg[i].kind == SF_A_NONE ? 0 : a[i];
	if (from != NOWHERE) {
		if (n > sizeof c.bytes || sf_user_bytes(c.bytes, a[from], n) < 0) {
			K->lost++;
			return;
		}
		c.bytes_n = (u32)n;
	}
	forget_state(kind_of_state(nr, c.a));
	if (K->calls == SF_KEPT_CALLS) {
		K->lost++;
		return;
	}
	K->call[K->calls++] = c;
}

static void note_prctl(const u64 a[6])
{
	u64 b[5] = { a[0], a[1], a[2], a[3], a[4] };
	switch (a[0]) {
	case PR_SET_PDEATHSIG:
		app.pdeathsig = (u32)a[1];
		if (me.slot == 0 && !app.spawn.active) { /* a child's goes with its exec (exec.c) */
			store(&G->pdeathsig_inv, ~app.pdeathsig);
			store(&G->pdeathsig, app.pdeathsig);
		}
		break;
	case PR_SET_NAME:
		if (!sf_thread_is_named(a))
			remember_state(NR_prctl, b, 1, 16);
		break;
	case 4:
	case 8:
	case 24:
	case 28:
	case 29:
	case 33:
	case 36:
	case 38:
	case 41:
	case 47:
	case 53:
	case 57:
	case 0x59616d61:
		/* DUMPABLE, KEEPCAPS, CAPBSET_DROP, SECUREBITS, TIMERSLACK, MCE_KILL, CHILD_SUBREAPER, NO_NEW_PRIVS,
		 * THP_DISABLE, CAP_AMBIENT, SPECULATION_CTRL, IO_FLUSHER, PTRACER */
		remember_state(NR_prctl, b, NOWHERE, 0);
		break;
	}
}

/* Capabilities as an exec by this process would leave them (capabilities(7)): with other ids than root's the ambient ones alone.
 * Root's are not raised again. */
static s64 limit_as_exec(void)
{
	const struct {
		u32 version;
		s32 pid;
	} head = { 0x20080522, 0 };
	struct {
		u32 effective, permitted, inheritable;
	} data[2];
	sys2(NR_prctl, PR_SET_KEEPCAPS, 0);
	if (sys0(NR_geteuid) == 0)
		return 0;
	s64 r = sys2(NR_capget, &head, data);
	if (r < 0)
		return r;
	for (u32 w = 0; w < 2; w++) {
		data[w].permitted = 0;
		for (u32 bit = 0; bit < 32; bit++)
			if (sys6(NR_prctl, PR_CAP_AMBIENT, 1 /* IS_SET */, 32 * w + bit, 0, 0, 0) == 1)
				data[w].permitted |= 1u << bit;
		data[w].effective = data[w].permitted;
	}
	return sys2(NR_capset, &head, data);
}

static s64 make_again(const struct sf_kernel_call *c)
{
	if (c->nr == NR_execve)
		return limit_as_exec();
	u64 a[5] = { c->a[0], c->a[1], c->a[2], c->a[3], c->a[4] };
	u64 bytes = (u64)c->bytes;
	if (SF_ROOM_CALL(c->nr) && sf_room_is_of((u32)a[0]))
		return sf_room_again(c->bytes);
	switch (c->nr) {
	case NR_prctl:
	case NR_setgroups:
	case NR_setrlimit:
	case NR_sched_setparam:
	case NR_sched_setattr:
		if (c->bytes_n)
			a[1] = bytes;
		break;
	case NR_prlimit64: a[0] = 0, a[2] = bytes, a[3] = 0; break;
	case NR_sched_setscheduler: a[2] = bytes; break;
	case NR_capset: a[0] = bytes, a[1] = bytes + 8; break;
	}
	if (c->nr >= NR_sched_setparam && c->nr <= NR_sched_setscheduler)
		a[0] = 0;
	if (c->nr == NR_sched_setattr)
		a[0] = 0;
	if ((c->nr == NR_setpriority || c->nr == NR_ioprio_set))
		a[1] = 0;
	if (c->nr == NR_setpgid) {
		a[0] = 0;
		if (a[1] == G->leader_pid)
			a[1] = 0;
	}
	if (c->nr == NR_mlockall)
		return sf_mlockall(a[0]);
	return sys6(c->nr, a[0], a[1], a[2], a[3], a[4], 0);
}

/* ---- timers ---- */

static void set_timer(u32 i, const s64 interval[2], const s64 first[2])
{
	struct sf_kernel_timer *t = &K->timer[i];
	for (u32 k = 0; k < 2; k++) {
		t->interval[k] = interval[k];
		t->first[k] = first[k];
	}
	if (me.slot == 0)
		G->timer_set[i] = sf_now();
}

static u32 timer_of(u32 id)
{
	for (u32 i = REAL_TIMERS; i < REAL_TIMERS + SF_KEPT_TIMERS; i++)
		if (K->timer[i].used && K->timer[i].id == id)
			return i;
	return 0;
}

struct sigevent {
	u64 value;
	s32 signo, notify, tid, pad[11];
};
_Static_assert(sizeof(struct sigevent) == 64, "sigevent(7)");

static void note_timer(const u64 a[6])
{
	struct sigevent e = { .signo = SIGALRM };
	u32 id = 0;
	if (sf_user_bytes(&id, a[2], 4) < 0)
		return;
	e.value = id; /* what a timer without a sigevent sends (timer_create(2)) */
	if (a[1] && sf_user_bytes(&e, a[1], sizeof e) < 0)
		return;
	for (u32 i = REAL_TIMERS; i < REAL_TIMERS + SF_KEPT_TIMERS; i++) {
		struct sf_kernel_timer *t = &K->timer[i];
		if (t->used)
			continue;
		memset(t, 0, sizeof *t);
		t->used = 1;
		t->id = id;
		t->clock = (u32)a[0];
		t->value = e.value;
		t->signo = e.signo;
		t->notify = e.notify;
		t->tid = e.notify == SIGEV_THREAD_ID ? (u32)e.tid : 0;
		number[i] = (s32)id;
		if (me.slot == 0)
			sf_kernel_mask();
		return;
	}
	K->lost++;
}

/* Leader, before a timer is made whose signals are for a thread that the kernel does not know: to the kernel it is the leader's. One
 * that counts a thread's processor time keeps the errno: it is the time of all of them. */
void sf_timer_translate(u64 call[7])
{
	static struct sigevent e;
	const s32 clock = (s32)call[1];
	if (!call[2] || clock < 0 || clock == 3 /* CLOCK_THREAD_CPUTIME_ID */ || sf_user_bytes(&e, call[2], sizeof e) < 0)
		return;
	if (e.notify != SIGEV_THREAD_ID || !sf_thread_names((u32)e.tid))
		return;
	e.tid = (s32)sys0(NR_gettid);
	call[2] = (u64)&e;
}

/* The thread that gets the signals of a timer, or 0. */
u32 sf_timer_thread(u32 id)
{
	const u32 i = timer_of(id);
	return i ? K->timer[i].tid : 0;
}

/* Signals that stay with the kernel until the thread of their timer takes them. */
u64 sf_timers_block(void)
{
	u64 m = 0;
	for (u32 i = REAL_TIMERS; i < REAL_TIMERS + SF_KEPT_TIMERS; i++) {
		const struct sf_kernel_timer *t = &K->timer[i];
		if (t->used && t->tid && t->signo > 0 && t->signo <= SF_SIGNALS)
			m |= sf_thread_blocks(t->tid, 1ull << (t->signo - 1));
	}
	return m;
}

/* A timer of setitimer(2): microseconds there. */
static void note_itimer(u32 which, const s64 *v)
{
	s64 interval[2] = { v ? v[0] : 0, v ? v[1] * 1000 : 0 }, first[2] = { v ? v[2] : 0, v ? v[3] * 1000 : 0 };
	if (which < REAL_TIMERS)
		set_timer(which, interval, first);
}

/* Time until a timer fires next, if it counts real time and was set `gone` ago; at least 1 ns,
 * since 0 would disarm it. */
static void left(const struct sf_kernel_timer *t, u64 gone, s64 out[2])
{
	/* The unsigned sums hold 584 years. */
	u64 first = (u64)t->first[0] * SECOND + (u64)t->first[1], every = (u64)t->interval[0] * SECOND + (u64)t->interval[1];
	u64 in = 1;
	if (gone < first)
		in = first - gone;
	else if (every)
		in = every - (gone - first) % every;
	out[0] = (s64)(in / SECOND);
	out[1] = (s64)(in % SECOND);
}

static void arm_again(u32 i)
{
	const struct sf_kernel_timer *t = &K->timer[i];
	u64 gone = sf_now() - G->timer_set[i];
	int armed = (t->first[0] | t->first[1]) != 0;
	s64 spec[4] = { t->interval[0], t->interval[1], t->first[0], t->first[1] };
	if (i < REAL_TIMERS) {
		if (!armed)
			return;
		if (i == 0)
			left(t, gone, spec + 2);
		spec[1] /= 1000;
		spec[3] = (spec[3] + 999) / 1000;
		if (spec[3] == 1000000)
			spec[2]++, spec[3] = 0;
		sys3(NR_setitimer, i, spec, 0);
		return;
	}
	struct sigevent e = { .value = t->value, .signo = t->signo, .notify = t->notify };
	if (e.notify == SIGEV_THREAD_ID)
		e.tid = (s32)sys0(NR_gettid);
	if (sys3(NR_timer_create, t->clock, &e, &number[i]) < 0 || !armed)
		return;
	/* Clocks of CPU time (negative, or 2 and 3) have started anew with their process. */
	if (!t->absolute && (s32)t->clock >= 0 && t->clock != 2 && t->clock != 3)
		left(t, gone, spec + 2);
	sys4(NR_timer_settime, number[i], t->absolute ? TIMER_ABSTIME : 0, spec, 0);
}

/* A timer that fires once has fired. */
static void fired(u32 i)
{
	struct sf_kernel_timer *t = &K->timer[i];
	if (!(t->interval[0] | t->interval[1]))
		t->first[0] = t->first[1] = 0;
}

/* Every replica, as it delivers a signal. */
void sf_kernel_delivered(const struct sf_siginfo *i)
{
	if (i->signo == SIGALRM && i->code == SI_KERNEL) {
		fired(0);
	} else if (i->code == SI_TIMER) {
		u32 t = timer_of((u32)i->words[0]);
		if (t)
			fired(t);
	}
}

/* ---- the journal ---- */

/* In every replica, after a call of sf_kernel_calls has succeeded and its results are in place. */
/* Timers, and what is heard of them. */
static void note_timers(u32 nr, const u64 a[6], s64 ret)
{
	s64 v[4] = { (s64)(u32)a[0], 0, 0, 0 };
	u32 i;
	switch (nr) {
	case NR_alarm:
		v[2] = v[0];
		v[0] = 0;
		note_itimer(0, v);
		break;
	case NR_setitimer:
		if (a[1] && sf_user_bytes(v, a[1], sizeof v) < 0)
			break;
		note_itimer((u32)a[0], a[1] ? v : NULL);
		break;
	case NR_timer_create: note_timer(a); break;
	case NR_timer_settime:
		i = timer_of((u32)a[0]);
		if (i && sf_user_bytes(v, a[2], sizeof v) == 0) {
			K->timer[i].absolute = a[1] & TIMER_ABSTIME;
			set_timer(i, v, v + 2);
		}
		break;
	case NR_timer_delete:
		i = timer_of((u32)a[0]);
		if (i)
			memset(&K->timer[i], 0, sizeof K->timer[i]);
		break;
	case NR_rt_sigtimedwait: /* instead of a delivery */
		if (ret == SIGALRM)
			fired(0);
		break;
	}
}

static void note_capabilities(const u64 a[6])
{
	/* Header and data lie apart: side by side here. */
	remember_state(NR_capset, a, 0, 8);
	struct sf_kernel_call *c = K->calls ? &K->call[K->calls - 1] : NULL;
	if (!c || c->nr != NR_capset)
		return;
	const u64 n = *(const u32 *)c->bytes == 0x19980330 /* version 1 */ ? 12 : 24;
	if (sf_user_bytes(c->bytes + 8, a[1], n) != 0)
		return;
	memset(c->bytes + 4, 0, 4); /* whose: the caller's, whatever its number */
	c->bytes_n = (u32)(8 + n);
}

/* Calls that are made again as they were. */
static void note_calls(u32 nr, const u64 a[6])
{
	switch (nr) {
	case NR_setuid:
	case NR_setgid:
	case NR_setreuid:
	case NR_setregid:
	case NR_setresuid:
	case NR_setresgid:
	case NR_setfsuid:
	case NR_setfsgid: remember_state(nr, a, NOWHERE, 0); break;
	case NR_setgroups: remember_state(nr, a, (s32)a[0] > 0 ? 1 : NOWHERE, (u64)(u32)a[0] * 4); break;
	case NR_capset: note_capabilities(a); break;
	case NR_prctl: note_prctl(a); break;
	case NR_setrlimit: remember_state(nr, a, 1, 16); break;
	case NR_prlimit64:
		if (a[2] && self(a[0])) {
			u64 b[5] = { a[1], a[1], a[2], 0, 0 }; /* the resource is the kind */
			remember_state(nr, b, 2, 16);
		}
		break;
	case NR_setpriority: /* PRIO_PROCESS */
		if (a[0] == 0 && self(a[1]))
			remember_state(nr, a, NOWHERE, 0);
		break;
	case NR_ioprio_set: /* IOPRIO_WHO_PROCESS */
		if (a[0] == 1 && self(a[1]))
			remember_state(nr, a, NOWHERE, 0);
		break;
	case NR_sched_setparam:
		if (self(a[0]))
			remember_state(nr, a, 1, 4);
		break;
	case NR_sched_setscheduler:
		if (self(a[0]))
			remember_state(nr, a, 2, 4);
		break;
	case NR_sched_setattr:
		if (self(a[0]))
			remember_state(nr, a, 1, 48);
		break;
	case NR_setpgid:
		if (self(a[0]))
			remember_state(nr, a, NOWHERE, 0);
		break;
	case NR_ioctl:
		if ((u32)a[1] == TIOCSCTTY)
			remember_state(nr, a, NOWHERE, 0);
		break;
	case NR_personality:
		if ((u32)a[0] != 0xffffffffu)
			remember_state(nr, a, NOWHERE, 0);
		break;
	case NR_setsid:
	case NR_mlockall:
	case NR_munlockall:
	case NR_set_robust_list: remember_state(nr, a, NOWHERE, 0); break;
	}
}

void sf_kernel_note(u32 nr, const u64 a[6], s64 ret)
{
	switch (nr) {
	case NR_chroot:
		app.blind = 1; /* the keeper shares the root directory: nothing is to be made again */
		break;
	case NR_alarm:
	case NR_setitimer:
	case NR_timer_create:
	case NR_timer_settime:
	case NR_timer_delete:
	case NR_rt_sigtimedwait: note_timers(nr, a, ret); break;
	default: note_calls(nr, a);
	}
}

/* Whether a process in which this call has failed may have rights that the program gave up. */
static int bounds_rights(u32 nr, const u64 a[5])
{
	if (nr == NR_prctl)
		return a[0] == 24 || a[0] == 28 || a[0] == 38 || a[0] == PR_CAP_AMBIENT; /* CAPBSET_DROP, SECUREBITS, NO_NEW_PRIVS */
	return nr == NR_execve || (nr >= NR_setuid && nr <= NR_setgid) || (nr >= NR_setreuid && nr <= NR_capset);
}

/* A new leader, which has the winner's memory and mirror: the rest of what it should be.
 * Negative: it would have more rights than the program, and must not go on. */
s64 sf_kernel_restore(void)
{
	if (K->lost)
		return -ENOSPC;
	/* Ids go down, limits and priorities too: those that need a right come before the calls
	 * that give it up, as they did before. */
	for (u32 i = 0; i < K->calls; i++) {
		s64 r = make_again(&K->call[i]);
		if (r < 0 && bounds_rights(K->call[i].nr, K->call[i].a))
			return r;
	}
	for (u32 i = 0; i < REAL_TIMERS + SF_KEPT_TIMERS; i++)
		if (i < REAL_TIMERS || K->timer[i].used)
			arm_again(i);
	if (me.tsc_traps)
		sf_code_traps(1);
	sf_die_with_launcher();
	return 0;
}

static int by_every_replica(const struct sf_kernel_call *c)
{
	return c->nr == NR_execve || sf_calls[c->nr].class == SF_ALL;
}

/* A secondary that came while the program ran: what every replica sets for its own process. The rest is set when it leads. */
s64 sf_kernel_join(void)
{
	if (K->lost)
		return -ENOSPC;
	for (u32 i = 0; i < K->calls; i++) {
		s64 r = by_every_replica(&K->call[i]) ? make_again(&K->call[i]) : 0;
		if (r < 0 && bounds_rights(K->call[i].nr, K->call[i].a))
			return r;
	}
	if (me.tsc_traps)
		sf_code_traps(1);
	sf_die_with_launcher();
	return 0;
}

/* The secondary of a pair leads: what every replica has called is set here as well, and limits are narrower by now. */
void sf_kernel_here(void)
{
	for (u32 i = 0; i < K->calls; i++)
		if (!by_every_replica(&K->call[i]))
			make_again(&K->call[i]);
	for (u32 i = 0; i < REAL_TIMERS + SF_KEPT_TIMERS; i++) {
		G->timer_set[i] = sf_now();
		if (i < REAL_TIMERS || K->timer[i].used)
			arm_again(i);
	}
	sf_die_with_launcher();
}

_Static_assert(__builtin_offsetof(struct sf_kernel_state, timer) == SF_PAIR_KEPT, "what is bequeathed");

/* The next program in a pair has the list: of what an exec leaves as it was, and what made it possible to set that (execve(2)). */
static int outlives_exec(const struct sf_kernel_call *c)
{
	if (c->nr == NR_prctl)
		return c->a[0] != 4 && c->a[0] != 15; /* DUMPABLE, NAME */
	return c->nr != NR_set_robust_list && c->nr != NR_mlockall;
}

void sf_kernel_bequeath(u8 *to)
{
	static struct sf_kernel_state next;
	u32 rights = 0;
	memset(&next, 0, sizeof next);
	next.lost = K->lost;
	for (u32 i = 0; i < K->calls; i++)
		if (outlives_exec(&K->call[i])) {
			rights |= (u32)bounds_rights(K->call[i].nr, K->call[i].a);
			next.call[next.calls++] = K->call[i];
		}
	if (rights && next.calls == SF_KEPT_CALLS)
		next.lost++;
	else if (rights)
		next.call[next.calls++].nr = NR_execve;
	memcpy(to, &next, SF_PAIR_KEPT);
}

void sf_kernel_inherit(const u8 *from)
{
	memcpy(K, from, SF_PAIR_KEPT);
}

/* ---- the leader's calls ---- */

/* Calls that the agent answers itself. */
int sf_kernel_answers(u32 nr, const u64 a[6], s64 *ret)
{
	switch (nr) {
	case NR_prctl:
		/* The leader's own parent death signal is what keeps the group from outliving its
		 * launcher; the program's is the launcher's to send (beat() in supervise/mod.rs; of a child: tree.rs). */
		if (a[0] == PR_SET_PDEATHSIG) {
			*ret = a[1] <= SF_SIGNALS ? 0 : -EINVAL;
			return 1;
		}
		if (a[0] == PR_GET_PDEATHSIG) {
			s32 v = (s32)app.pdeathsig;
			*ret = sf_user_put(a[1], &v, sizeof v);
			return 1;
		}
		return 0;
	case NR_getpid:
	case NR_gettid: *ret = (s64)G->leader_pid; return me.renumbered != 0;
	case NR_getppid: return sf_ward_parent(ret);
	}
	return 0;
}

static void own_number_in(u64 *pid)
{
	if ((u32)*pid == G->leader_pid)
		*pid = (u64)sys0(NR_getpid);
	else if ((u32) - (s32)*pid == G->leader_pid)
		*pid = (u64)-sys0(NR_getpid);
	else if (sf_pair_own((s32)*pid))
		*pid = (u64)(s64)sf_pair_own((s32)*pid);
	else if (sf_pair_own(-(s32)*pid))
		*pid = (u64) - (s64)sf_pair_own(-(s32)*pid);
}

static void number_in(u64 *pid)
{
	const u64 before = *pid;
	if (me.renumbered)
		own_number_in(pid);
	if (*pid == before)
		*pid = sf_number_of(before);
}

/* Numbers of the program's own process, timers and segments, as the kernel knows them by now. */
void sf_kernel_translate(u32 nr, u64 call[7])
{
	u64 *a = call + 1;
	if (nr >= NR_timer_settime && nr <= NR_timer_delete) {
		u32 i = timer_of((u32)a[0]);
		if (i)
			a[0] = (u64)number[i];
		return;
	}
	if (sf_ipc_names(nr, a))
		a[0] = (u64)sf_ipc_own(sf_ipc_kind(nr), (s32)a[0]);
	const u64 before = a[0];
	if (nr == NR_kill || nr == NR_rt_sigqueueinfo || nr == NR_getpgid || nr == NR_getsid)
		a[0] = sf_ward_reaches(a[0], nr == NR_kill ? a[1] : 0);
	if (a[0] != before || !(me.renumbered || load(&G->renumbered)))
		return;
	switch (nr) {
	case NR_setpgid: /* of children, which are proxies by now, as wait4(2) and what waits by a pidfd */
		if (me.renumbered)
			own_number_in(&a[1]);
		/* fallthrough */
	case NR_wait4:
	case NR_pidfd_open:
		if (me.renumbered)
			own_number_in(&a[0]);
		break;
	case NR_tgkill:
	case NR_rt_tgsigqueueinfo:
		number_in(&a[0]);
		number_in(&a[1]);
		break;
	case NR_kill:
	case NR_tkill:
	case NR_rt_sigqueueinfo:
	case NR_getpgid:
	case NR_getsid:
	case NR_sched_setparam:
	case NR_sched_getparam:
	case NR_sched_setscheduler:
	case NR_sched_getscheduler:
	case NR_sched_rr_get_interval:
	case NR_sched_setaffinity:
	case NR_sched_getaffinity:
	case NR_sched_setattr:
	case NR_sched_getattr:
	case NR_prlimit64: number_in(&a[0]); break;
	case NR_getpriority:
	case NR_setpriority:
	case NR_ioprio_get:
	case NR_ioprio_set: number_in(&a[1]); break;
	}
}

s64 sf_kernel_result(u32 nr, const u64 a[6], s64 ret)
{
	if (unlikely(G->options & SF_O_PAIR) && unlikely(sf_ipc_kind(nr) >= 0))
		return sf_ipc_result(nr, a, ret);
	if (likely(!me.renumbered) || ret <= 0)
		return ret;
	switch (nr) {
	case NR_wait4: {
		const s32 number = sf_pair_reaped((s32)ret);
		return number ? number : ret;
	}
	case NR_getpgid:
	case NR_getsid:
	case NR_getpgrp:
	case NR_setsid: return ret == sys0(NR_getpid) ? (s64)G->leader_pid : ret;
	}
	return ret;
}

/* ... and the other way, in what the kernel tells of a signal. */
void sf_kernel_siginfo(struct sf_siginfo *i)
{
	sf_ward_names(i);
	if (i->code == SI_TIMER) {
		for (u32 t = REAL_TIMERS; t < REAL_TIMERS + SF_KEPT_TIMERS; t++) {
			if (K->timer[t].used && number[t] == (s32)i->words[0]) {
				i->words[0] = (i->words[0] & ~0xffffffffull) | K->timer[t].id;
				break;
			}
		}
	} else if (me.renumbered && i->code <= 0 && (s64)(s32)i->words[0] == sys0(NR_getpid)) {
		i->words[0] = (i->words[0] & ~0xffffffffull) | G->leader_pid;
	}
}
