/* State alignment: replicas that compute come to one place, so that a signal can be delivered there.
 *
 *   sf_pause_here ──SEEK──► one instruction after the other, or as fast as it goes to a planted payload
 *         ▲                      │ the state that another replica has sent (recover.c, sf_send)
 *         └──────────────────────┘
 *         └──HEAR──► an event at which signals are delivered (calls.c, sf_more_signals)
 *
 * Who looks for whom, where a payload is planted, and whether memory agrees as well, is the launcher's business
 * (crates/replica/src/supervise/alignment.rs). Here a state is the registers, flags and vector state included.
 *
 * Invariants
 *  1. Outside an alignment nobody seeks: whoever a left payload leads here passes on.
 *  2. Who steps stops doing so at an event.
 */
#include "agent.h"
#include "layout/frame.h"

#define RF 0x10000ull

static int is_there(const struct sf_regs *r, const void *fp)
{
	const struct sf_transfer *t = TRANSFER;
	static u8 own[16384] __attribute__((aligned(64))), sent[16384] __attribute__((aligned(64)));
	const u32 n = sf_fp_bytes();
	if (me.next != t->next || memcmp(r, &t->regs, sizeof *r) != 0 || n > sizeof own || t->fp_bytes != n)
		return 0;
	memcpy(own, fp, n);
	memcpy(sent, t->fp, n);
	sf_fp_normalise(own);
	sf_fp_normalise(sent);
	/* What the kernel notes about its frame (struct _fpx_sw_bytes) is no state. */
	memset(own + 464, 0, 48);
	memset(sent + 464, 0, 48);
	return memcmp(own, sent, n) == 0;
}

/* Registers may be the same in each round of a loop. What the launcher has seen differ in memory then is looked at before
 * everybody waits for it to look at all. */
static int words_agree(void)
{
	for (u32 i = 0; i < SEEK_WORDS->n && i < SF_SEEK_WORDS; i++) {
		u64 v;
		if (sf_user_bytes(&v, SEEK_WORDS->word[i].at, sizeof v) < 0 || v != SEEK_WORDS->word[i].value)
			return 0;
	}
	return 1;
}

/* The words that a payload compares with (alignment.rs, `payload`). */
static void seek_freely(void)
{
	const u64 *want = (const u64 *)&TRANSFER->regs;
	for (u32 i = 0; i < sizeof tls.seek_less / sizeof *tls.seek_less; i++)
		tls.seek_less[i] = -want[i];
	me.seek = 0;
	tls.seek = me.how + 1;
	tls.seek_any = me.how == SF_SEEK_PLACE || me.how == SF_SEEK_NEXT;
}

static void seek_no_more(void)
{
	me.seek = 0;
	tls.seek = tls.seek_any = 0;
	memset(tls.seek_less, 0, sizeof tls.seek_less); /* as rsp never is */
}

/* The same for one that may be on its way by steps. */
void sf_seek_no_more(struct rt_frame *f)
{
	if (me.seek)
		f->uc.mc.eflags &= ~TF;
	seek_no_more();
}

/* All have met. A re-run from the last snapshot would not come to this place by itself: where there are re-runs, this is
 * the place of a new snapshot, and signals are the event after it. */
static u32 heard(void)
{
	/* A process that shares memory has no snapshots. */
	const int snapshot = (G->options & SF_O_RETAIN) && !app.domain;
	me.heard = me.slot == 0 && snapshot;
	return snapshot ? SF_DESC_EPOCH : SF_DESC_SIGNALS;
}

/* This replica computes while the others wait for it, or is to meet them: pause where it is. It goes on from there,
 * unless a transplant has made it another. */
void sf_pause_here(struct rt_frame *f)
{
	struct sf_regs *r = &me.fault_regs, *before = me.regs;
	struct sigcontext *m = &f->uc.mc;
	const u32 doing = me.doing;
	sf_signals_hear();
	seek_no_more();
	me.hear = 0;
	m->eflags &= ~(TF | RF);
	sf_regs_from(r, m);
	me.regs = r;
	me.doing = SF_D_NOTHING; /* whoever is made from this one goes on with the next instruction */
	me.fault_frame = (u64)f;
	for (;;) {
		sf_stand();
		if (me.restarted || !me.seek || me.how == SF_SEEK_ON || me.how >= SF_SEEK_FREE)
			break;
		if (me.how == SF_SEEK_PLACE ? r->rip != TRANSFER->regs.rip : !is_there(r, (void *)m->fpstate))
			break;
		me.seek = 0;
		G->slot[me.slot].sought = 1;
	}
	if (me.restarted) {
		me.restarted = me.seek = me.hear = 0;
		sf_as_event(r);
		sf_regs_to(m, r);
	} else {
		me.regs = before;
		me.doing = doing;
		if (me.seek && me.how >= SF_SEEK_PLACE) {
			seek_freely();
		} else if (me.seek) {
			m->eflags |= TF;
		} else if (me.hear) {
			me.hear = 0;
			tls.rcx = m->rcx;
			tls.desc = heard();
			m->rcx = m->rip;
			m->rip = (u64)sf_entry_entropy;
		}
	}
	sf_kernel_mask();
	me.fault_frame = 0;
}

/* Whether the next instruction may be one that enters the kernel, that shows the trace flag to the program, or behind
 * which the processor does not trap. */
static int may_not_step(u64 ip)
{
	u8 c[16]; /* no instruction is longer than 15 */
	u32 i = 0;
	if (sf_user_bytes(c, ip, sizeof c) < 0)
		return 1;
	while (i < 14 && (c[i] == 0x66 || c[i] == 0x67 || c[i] == 0xf0 || (c[i] & 0xfe) == 0xf2 || (c[i] & 0xe7) == 0x26 ||
			  (c[i] & 0xfe) == 0x64 || (c[i] & 0xf0) == 0x40))
		i++; /* prefixes */
	switch (c[i]) {
	case 0x0f: return c[i + 1] == 0x05 || c[i + 1] == 0x34; /* syscall, sysenter */
	case 0xcd: /* int */
	case 0xf1: /* int1, whose trap looks like a step that was mistaken for it (signal.c, TRAP_BRKPT) */
	case 0x9c: /* pushf */
	case 0x9d: /* popf */
	case 0xcf: /* iret */
	case 0x8e: /* mov to a segment register */ return 1;
	}
	return 0;
}

/* A replica that seeks by steps is about to leave the kernel's handler: 1 if straight to the program. The way through
 * sf_sigreturn_tail, which closes the selector, takes instructions of its own, and each would trap; so the selector stays
 * open for the one instruction that is certain to be no call. */
int sf_steps_on(struct rt_frame *f)
{
	struct sigcontext *m = &f->uc.mc;
	if (!me.seek || !(m->eflags & TF))
		return 0;
	if (!may_not_step(m->rip))
		return 1;
	sf_seek_no_more(f);
	return 0;
}

/* One instruction farther. */
void sf_step(struct rt_frame *f)
{
	struct sigcontext *m = &f->uc.mc;
	if (unlikely(!load(&G->aligning))) { /* it has been given up */
		sf_seek_no_more(f);
		return;
	}
	me.seek--;
	int there = m->rip == TRANSFER->regs.rip;
	if (there) {
		struct sf_regs r;
		sf_regs_from(&r, m);
		r.eflags &= ~(TF | RF);
		there = is_there(&r, (void *)m->fpstate);
	}
	if (me.seek && !there)
		return;
	G->slot[me.slot].sought = (u32)there;
	sf_pause_here(f);
}

/* A payload has found the registers that are looked for. r->rip is behind it, in the arena. */
void sf_found(struct sf_regs *r, u64 payload)
{
	static u8 fp[16384] __attribute__((aligned(64)));
	const u64 behind = r->rip;
	me.regs = r;
	if (unlikely(!load(&G->aligning)))
		seek_no_more();
	if (!tls.seek || payload != SEEK_WORDS->payload || sf_fp_bytes() > sizeof fp)
		return;
	G->slot[me.slot].entered++;
	r->rip = TRANSFER->regs.rip;
	r->eflags &= ~RF;
	int there = tls.seek_any != 0;
	if (!there && words_agree()) {
		sf_fp_save(fp);
		there = is_there(r, fp);
	}
	if (there) {
		const u32 doing = me.doing;
		me.hear = 0;
		me.doing = SF_D_NOTHING;
		seek_no_more();
		do { /* it is at its place */
			me.seek = 0;
			G->slot[me.slot].sought = 1;
			sf_stand();
			if (me.restarted)
				sf_again(r);
		} while (me.seek && me.how == SF_SEEK_PLACE);
		me.doing = doing;
		if (me.hear) {
			me.hear = 0;
			if (heard() == SF_DESC_EPOCH)
				sf_epoch(r);
			else
				sf_more_signals(r);
			return;
		}
		if (me.seek && me.how >= SF_SEEK_PLACE)
			seek_freely();
		me.seek = 0; /* from here nobody steps: there is no frame of the kernel's to set the trace flag in */
	}
	r->rip = behind;
}
