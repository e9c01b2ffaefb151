/*
 * A stack, with all that a function has to keep, from one thread of the kernel to another (second_core.c). rdi: the partner.
 *
 * What lies on the stack between: the six registers, then the control words of both floating-point units.
 *
 * Invariant: with the other's thread pointer nothing is run but a handler.
 *
 * Shared with second_core.c: offsets in struct sf_partner (layout.h).
 */
#include "layout.h"

	.text
	.macro	leave_stack
	pushq	%rbx
	pushq	%rbp
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	subq	$8, %rsp
	stmxcsr	(%rsp)
	fnstcw	4(%rsp)
	.endm
	.macro	enter_stack
	fldcw	4(%rsp)
	ldmxcsr	(%rsp)
	addq	$8, %rsp
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbp
	popq	%rbx
	ret
	.endm
/* The thread pointer becomes the field at \offset of rdi. Changes rax, rcx, rdx, rsi, r11. */
	.macro	thread_pointer offset
	movq	\offset(%rdi), %rsi
	cmpq	$0, SF_PARTNER_INSTRUCTION(%rdi)
	je	1f
	wrfsbase %rsi
	jmp	2f
1:	movq	%rdi, %rdx
	movl	$0x1002, %edi                   /* ARCH_SET_FS */
	movl	$158, %eax                      /* arch_prctl */
	syscall
	movq	%rdx, %rdi
2:
	.endm

	.globl	sf_hand_over
	.hidden	sf_hand_over
	.type	sf_hand_over, @function
	.p2align 4
sf_hand_over:
	leave_stack
	movq	%rsp, SF_PARTNER_SP(%rdi)
	movq	SF_PARTNER_WAIT_SP(%rdi), %rsp
	pushq	%rdi
	subq	$8, %rsp
	call	sf_second_core_wait
	addq	$8, %rsp
	popq	%rdi
	movq	SF_PARTNER_SP(%rdi), %rsp
	enter_stack
	.size	sf_hand_over, .-sf_hand_over

	.globl	sf_take_over
	.hidden	sf_take_over
	.type	sf_take_over, @function
	.p2align 4
sf_take_over:
	leave_stack
	movq	%rsp, SF_PARTNER_OWN_SP(%rdi)
	thread_pointer SF_PARTNER_THREAD_BASE
	movq	SF_PARTNER_SP(%rdi), %rsp
	enter_stack
	.size	sf_take_over, .-sf_take_over

	.globl	sf_hand_back
	.hidden	sf_hand_back
	.type	sf_hand_back, @function
	.p2align 4
sf_hand_back:
	leave_stack
	movq	%rsp, SF_PARTNER_SP(%rdi)
	thread_pointer SF_PARTNER_OWN_BASE
	movq	SF_PARTNER_OWN_SP(%rdi), %rsp
	enter_stack
	.size	sf_hand_back, .-sf_hand_back

	.section .note.GNU-stack,"",@progbits
