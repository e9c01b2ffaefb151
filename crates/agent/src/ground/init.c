/* Init: from the exec stop to the program's first instruction.
 *
 * The launcher has written this image into the exec'd process, patched the program and its
 * interpreter, and set rip to sf_start. The leader maps the log, makes the keeper and the
 * followers as copies of itself (equal layout, equal AT_RANDOM, one descriptor table), each
 * arms its backstop, all wait for the launcher's go and become the program.
 */
#include "agent.h"

struct sf_me me;
struct sf_mirror app;
struct sf_tls tls __attribute__((aligned(4096)));
struct sf_boot sf_boot __attribute__((section(".boot")));
struct sf_traps sf_traps __attribute__((section(".boot")));

#define STACK_BYTES 65536 /* gate.S knows it too */
u8 sf_stack[STACK_BYTES] __attribute__((aligned(4096)));
u8 sf_alt_stack[ALT_STACK_BYTES] __attribute__((aligned(4096)));

NORETURN void sf_setup_failed(u32 step, s64 err)
{
	G->end_nr = step;
	G->end_value = err;
	sf_say_end(SF_E_SETUP);
	sf_raw6(NR_futex, (u64)&G->launcher_bell, 1, 1, 0, 0, 0);
	for (;;)
		sf_raw6(NR_exit_group, 121, 0, 0, 0, 0, 0);
}

/* The log, at its place in every replica; from here on %gs is the agent's. */
static void map_log(void)
{
	tls.stack = (u64)sf_stack + STACK_BYTES;
	tls.secret = sf_boot.secret;
	tls.token = sf_boot.secret;
	/* sf_raw() stores through %gs, so the base comes first, by the instruction's own call. */
	s64 r;
	__asm__ volatile("syscall" : "=a"(r) : "a"((u64)NR_arch_prctl), "D"(0x1001 /* ARCH_SET_GS */), "S"(&tls) : "rcx", "r11", "memory");
	r = sf_raw6(NR_mmap, SF_SHARED, SF_SHARED_BYTES, 3, 0x1 | 0x10 | 0x4000 /* SHARED|FIXED|NORESERVE */, (u64)sf_boot.shared_fd, 0);
	if ((u64)r != SF_SHARED)
		sf_raw6(NR_exit_group, 121, 0, 0, 0, 0, 0);
	sf_raw6(NR_close, (u64)sf_boot.shared_fd, 0, 0, 0, 0, 0);
}

/* What the kernel knows of the program that is about to begin. */
static void look_around(void)
{
	app.brk_start = app.brk_now = (u64)sf_raw6(NR_brk, 0, 0, 0, 0, 0, 0);
	/* /proc/self/auxv then shows what the program sees on its stack (prctl(2), PR_SET_MM;
	 * not allowed without CAP_SYS_RESOURCE, and then it shows the kernel's). */
	u64 words = 0;
	while (((u64 *)sf_boot.auxv)[2 * words])
		words++;
	sf_raw6(NR_prctl, 35 /* PR_SET_MM */, 12 /* PR_SET_MM_AUXV */, sf_boot.auxv, (words + 1) * 16, 0, 0);
	s64 r = sf_raw6(NR_open, (u64) "/proc/self/maps", 02000000 /* O_CLOEXEC */, 0, 0, 0, 0);
	if (r >= 0)
		sf_raw6(NR_close, (u64)r, 0, 0, 0, 0, 0);
	app.blind = r == -2 /* ENOENT */ || r == -20 /* ENOTDIR */; /* a program before this one has changed its root directory */
	app.pdeathsig = G->pdeathsig; /* of the program that this one has replaced */
	G->leader_pid = (u32)sf_raw6(NR_getpid, 0, 0, 0, 0, 0, 0);
}

/* Signals, backstop and shared memory, before there are copies of this process. */
static void make_ready(void)
{
	s64 r;
	sf_flip_disarm();
	if ((r = sf_signals_init()) < 0)
		sf_setup_failed(SF_STEP_SIGNALS, r);
	if (sf_boot.clocks)
		sf_clock_traps();
	if ((G->options & SF_O_SECCOMP) && (r = sf_filter()) < 0)
		sf_setup_failed(SF_STEP_FILTER, r);
	if ((r = sf_try_arm()) < 0)
		sf_setup_failed(SF_STEP_ARM, r);
	if ((r = sf_domain_init()) < 0)
		sf_setup_failed(SF_STEP_DOMAIN, r);
}

/* The keeper and the followers. Each goes on from here as what it is. */
static void make_replicas(void)
{
	s64 r;
	if (G->options & SF_O_PAIR)
		sf_pair_init();
	else if (!(G->options & SF_O_TREE) && (r = sf_make_keeper()) < 0)
		sf_setup_failed(SF_STEP_COPIES, r); /* alone, the leader would be lost with all that it holds */
	for (u32 s = 1; s < me.replicas && !(G->options & SF_O_PAIR); s++) {
		r = sf_fork_follower(s);
		if (me.slot != 0)
			break;
		if (r < 0)
			sf_setup_failed(SF_STEP_COPIES + s, r);
	}
	if (me.slot == 0 && (r = sf_privatise_all()) < 0)
		sf_setup_failed(SF_STEP_PRIVATE, r);
}

NORETURN void sf_init(void)
{
	map_log();
	me.role = SF_LEADER;
	me.replicas = G->replicas;
	me.next = me.base = 1; /* fresh shared memory is all zeros: 0 would look like a record */
	G->base = 1;
	look_around();
	G->slot[0].phase = SF_P_STARTING;
	make_ready();
	make_replicas();
	me.last_epoch_tsc = sf_tsc();
	me.epoch_gap = G->epoch_tsc;
	if (!(G->options & SF_O_PAIR_JOIN) && sf_first_snapshot())
		sf_leave((const struct sf_regs *)sf_boot.regs);
	store(&G->slot[me.slot].phase, SF_P_RUNNING);
	__atomic_fetch_add(&G->launcher_bell, 1, __ATOMIC_SEQ_CST);
	sys3(NR_futex, &G->launcher_bell, 1, 1);
	while (!load(&G->go))
		sys4(NR_futex, &G->go, 0, 0, 0);
	if (G->options & SF_O_PAIR_JOIN) {
		me.fresh = 1;
		me.regs = &me.fault_regs;
		sf_stand_again(&me.fault_regs);
	}
	sf_kernel_mask();
	sf_flip_arm();
	if (G->options & SF_O_PROFILE)
		sf_boot.regs[17] |= 0x100; /* TF */
	sf_leave((const struct sf_regs *)sf_boot.regs);
}
