/* Regs: the registers of a program, in memory and on the way there and back.
 *
 * Invariant: the order is what pushing rdi first and r15 last leaves, below rsp, rip and rflags.
 * Vector state is nobody's business here: code inside a process touches general registers only.
 */
#ifndef SF_REGS_H
#define SF_REGS_H
#ifdef __ASSEMBLER__

/* On to a stack that rsp, rip and rflags are on already; rax and rbx from elsewhere, if they
 * were needed on the way. Intel syntax. */
.macro PUSH_REGS rax=rax, rbx=rbx
	push	rdi
	push	rsi
	push	rdx
	push	rcx
	push	\rax
	push	r8
	push	r9
	push	r10
	push	r11
	push	\rbx
	push	rbp
	push	r12
	push	r13
	push	r14
	push	r15
.endm

/* Back from there. `rcx` is what is done about that one: `pop rcx`, or left for later. */
.macro POP_REGS rcx
	pop	r15
	pop	r14
	pop	r13
	pop	r12
	pop	rbp
	pop	rbx
	pop	r11
	pop	r10
	pop	r9
	pop	r8
	pop	rax
	\rcx
	pop	rdx
	pop	rsi
	pop	rdi
.endm
#define LEAVE_RCX "add rsp, 8"

#else
#include <stdint.h>

struct sf_regs {
	uint64_t r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi;
	uint64_t rsp, rip, eflags;
};
_Static_assert(sizeof(struct sf_regs) == 18 * 8, "as PUSH_REGS leaves them");
#endif
#endif
