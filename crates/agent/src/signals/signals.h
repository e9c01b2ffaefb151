/* Signals: the program's, at one place of the log in all replicas. */
#ifndef SF_SIGNALS_H
#define SF_SIGNALS_H

#include "layout/state.h"
#include "tables/tables.h"

/* signal.c: the kernel speaks to the agent, the agent speaks to the program */
int sf_signals_wait(void);
int sf_signal_stops(u32 s);
NORETURN void sf_die(int s);
NORETURN void sf_no_frame(struct sf_regs *);
void sf_on_signal(int, struct sf_siginfo *, void *uc, u64 frame);
s64 sf_signals_init(void);
void sf_signals_receive(void);
int sf_signal_pending(void);
enum sf_interrupt {
	SF_I_NOTHING, /* no signal of the program's: the launcher wants a pause */
	SF_I_AGAIN,   /* deliver, and make the call after the handler */
	SF_I_ENDS,    /* deliver, and the call says EINTR */
};
enum sf_interrupt sf_interrupted(s64 ret);
int sf_signal_restarts(void);
int sf_signal_passes(void);
void sf_signal_attach(struct sf_result *, int restart);
void sf_signal_taken(u64 siginfo);
void sf_signals_held(u64 set);
#define SF_READ_INFO 128u
void sf_signals_read(u64 fd, u64 at, u64 bytes);
void sf_signals_hear(void);
void sf_signals_hold(void);
void sf_signals_hold_all(void);
void sf_signals_bequeath(void);
void sf_signals_let_go(void);
void sf_signals_reclaim(void);
void sf_signals_release(void);
int sf_user_put(u64 to, const void *from, u64 n);
void sf_deliver(struct sf_regs *, const struct sf_siginfo *);
s64 sf_sigaction(const u64 a[6]);
s64 sf_sigprocmask(const u64 a[6]);
s64 sf_sigaltstack(const u64 a[6]);
void sf_before_wait(const struct sf_call *, u32 nr, const u64 a[6]);
void sf_after_wait(void);
void sf_do_sigreturn(struct sf_regs *);
void sf_kernel_mask(void);
int sf_mask_is_old(void);
void sf_kernel_action(int);
u64 sf_frame_fp(u64 frame);
s64 sf_signals_start(void);
u32 sf_fp_bytes(void);
void sf_fp_save(void *);
void sf_fp_normalise(u8 *);
void sf_fp_complete(u64 at, u64 rfbm, int compact);
void sf_fp_load(const void *);

#endif
