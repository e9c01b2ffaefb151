/* Frame: what the kernel leaves on the stack for a signal handler (arch/x86 rt_sigframe, see sigreturn(2)). */
#ifndef SF_FRAME_H
#define SF_FRAME_H

#include "agent.h"

#define TF 0x100ull /* of the flags: a trap after each instruction */

struct sigcontext {
	u64 r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags;
	u16 cs, gs, fs, ss;
	u64 err, trapno, oldmask, cr2, fpstate, reserved[8];
};
struct ucontext {
	u64 flags, link;
	u64 ss_sp;
	u32 ss_flags, ss_pad;
	u64 ss_size;
	struct sigcontext mc;
	u64 sigmask;
};
struct rt_frame {
	u64 pretcode;
	struct ucontext uc;
	struct sf_siginfo info;
};
_Static_assert(sizeof(struct sigcontext) == 256, "asm/sigcontext.h");
_Static_assert(sizeof(struct ucontext) == 304, "asm/ucontext.h");

INLINE void sf_regs_from(struct sf_regs *r, const struct sigcontext *m)
{
	*r = (struct sf_regs){ m->r15, m->r14, m->r13, m->r12, m->rbp, m->rbx, m->r11, m->r10, m->r9,
			       m->r8,  m->rax, m->rcx, m->rdx, m->rsi, m->rdi, m->rsp, m->rip, m->eflags };
}

INLINE void sf_regs_to(struct sigcontext *m, const struct sf_regs *r)
{
	m->r8 = r->r8;
	m->r9 = r->r9;
	m->r10 = r->r10;
	m->r11 = r->r11;
	m->r12 = r->r12;
	m->r13 = r->r13;
	m->r14 = r->r14;
	m->r15 = r->r15;
	m->rdi = r->rdi;
	m->rsi = r->rsi;
	m->rbp = r->rbp;
	m->rbx = r->rbx;
	m->rdx = r->rdx;
	m->rax = r->rax;
	m->rcx = r->rcx;
	m->rsp = r->rsp;
	m->rip = r->rip;
	m->eflags = r->eflags;
}

#endif
