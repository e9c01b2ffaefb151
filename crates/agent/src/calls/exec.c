/* Exec: the program becomes another one (execve(2)).
 *
 * Followers cannot repeat it: what they run would be copies of a program, and copies are made by
 * forking. So the leader alone becomes the new program, in the process that the caller knows, with
 * its descriptors, directory, timers and pending signals; the launcher stops it before the first
 * instruction, ends the others, and starts a group from it as it does from the command line
 * (launch.rs).
 *
 *   agreed ──► would it be refused? ──► launcher traces ──► execve ──► no way back
 *                     │ yes                   ▲                │ error
 *                     ▼                       └──── STAY ──────┘
 *                  its errno, as of any other call
 *
 * A child that --unprotected names is not traced: it gets back what it would have had bare, and goes.
 *
 * Invariant: the kernel is asked only while the launcher traces, so no new program runs a single
 * instruction by itself; but for one that the caller has named.
 *
 * Not covered: a backstop that is a seccomp filter, which no process can get rid of: refused.
 */
#include "agent.h"

#define AT_FDCWD (-100)
#define AT_EACCESS 0x200
#define X_OK 1
#define PR_SET_PDEATHSIG 1

/* 0: the call may be made; an errno of the call. Does not return where it is refused. */
s64 sf_exec_begin(u32 nr, const u64 a[6])
{
	int at = nr == NR_execveat;
	/* Searches along PATH ask for what is not there, again and again: that needs no tracer. */
	s64 r = sys4(NR_faccessat2, at ? (s64)a[0] : AT_FDCWD, at ? a[1] : a[0], X_OK, AT_EACCESS | (at ? a[4] : 0));
	if (r < 0)
		return r;
	/* Signals that come from here on find the new program, as the mask that it inherits says. The
	 * launcher's own word too: unheard, it would kill by default. */
	sf_signals_hold_all();
	const u64 dir = at ? a[0] : (u64)AT_FDCWD, path = at ? a[1] : a[0];
	if (app.spawn.active) { /* the process stays when its parent dies, once it is a program of its own */
		r = sf_rpc(SF_RPC_SPAWN, app.mask, (u64)sys0(NR_getpid), path, dir, app.pdeathsig);
		sys2(NR_prctl, PR_SET_PDEATHSIG, 0);
	} else {
		if (G->options & SF_O_PAIR)
			sf_pair_bequeath();
		r = sf_rpc(SF_RPC_EXEC, app.mask, 0, path, dir, me.next);
	}
	if (r && r != SF_EXEC_BARE)
		sf_end(SF_E_REFUSED, (u32)r, (s64)a[1], me.regs);
	sf_signals_bequeath();
	if (me.tsc_traps)
		sf_code_traps(0);
	if (r == SF_EXEC_BARE) {
		if (app.spawn.active)
			sys2(NR_prctl, PR_SET_PDEATHSIG, app.pdeathsig);
		sys3(NR_sched_setaffinity, 0, G->affinity_bytes, G->affinity);
		sf_signals_let_go();
	}
	return 0;
}

void sf_exec_failed(void)
{
	if (app.spawn.active)
		sys2(NR_prctl, PR_SET_PDEATHSIG, 9);
	sf_rpc(SF_RPC_STAY, 0, 0, 0, 0, 0);
	if (me.tsc_traps)
		sf_code_traps(1);
	sf_signals_reclaim();
}
