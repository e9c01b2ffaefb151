/* Where a payload goes when its countdown is over.
 *
 * Entered by a call from the arena with, from rsp up: the return address, a descriptor (low 16
 * bits: site; bit 16: the instruction is done; bit 17: the word above is rflags, not rcx), that
 * word, and the program's own stack with its red zone. Everything runs on a stack of this
 * file's own, one thread at a time; a thread that cannot get in goes on without a fault, and
 * that is counted. What it leaves by is `ret 128`, which takes rip and rsp back in one
 * instruction; only a changed rsp needs a word of memory for the jump.
 */
#include "regs.h"
	.intel_syntax noprefix
	.text
	.globl	si_base
si_base:
	.quad	si_entry - si_base	/* header: read by crates/inject/src/payload.rs */
	.globl	si_shared
si_shared:
	.quad	0			/* address of the memfd, filled in */
	.globl	si_entry
si_entry:
	pushfq
	push	rax
	push	rbx
	mov	ebx, 1 << 22
1:	mov	eax, 1
	xchg	[rip + si_lock], eax
	test	eax, eax
	jz	2f
	pause
	dec	ebx
	jnz	1b
	mov	rax, [rip + si_shared]
	lock inc qword ptr [rax + 32]	/* si_head.lost */
	pop	rbx
	pop	rax
	popfq
	ret
2:	mov	[rip + si_user], rsp
	mov	rax, rsp		/* 0 rbx, 8 rax, 16 flags, 24 return, 32 desc, 40 word */
	lea	rsp, [rip + si_stack + 16384]
	push	[rax + 16]
	push	[rax + 24]
	lea	rbx, [rax + 176]
	push	rbx
	PUSH_REGS rax=[rax+8], rbx=[rax]
	mov	rdi, rsp
	mov	rsi, [rax + 32]
	mov	rdx, [rax + 40]
	cld
	mov	rbx, rsp
	and	rsp, -16
	call	si_strike
	mov	rsp, rbx
	test	rax, rax
	jz	3f
	/* rax: a copy of the frame under the program's stack */
	mov	rsp, rax
	mov	dword ptr [rip + si_lock], 0
	POP_REGS "pop rcx"
	popfq
	ret	128
3:	POP_REGS "pop rcx"
	pop	[rip + si_rsp]
	pop	[rip + si_rip]
	popfq
	mov	rsp, [rip + si_rsp]
	mov	dword ptr [rip + si_lock], 0
	jmp	[rip + si_rip]

	.data
	.balign	64
si_lock: .quad	0
si_user: .quad	0
si_rsp:	.quad	0
si_rip:	.quad	0
	.bss
	.balign	64
si_stack: .skip 16384
	.section .note.GNU-stack,"",@progbits
