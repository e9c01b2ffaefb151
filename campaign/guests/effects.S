/* One instruction per kind of fault, each with a label, between no-ops that leave room for a
 * jump. work(cells, x) runs them once over four cells; effects.c prints what came out. */
	.intel_syntax noprefix
	.text
.macro SITE name
	.nops 8, 8
	.globl	\name
	.type	\name, @function
\name:
.endm
	.globl	work
	.type	work, @function
work:
	push	rbx
	push	r12
	mov	rbx, rdi
	mov	r12, rsi
SITE s_load
	mov	rax, [rbx]
	.nops 8, 8
	mov	[rbx + 32], rax
SITE s_alu
	add	rax, r12
	.nops 8, 8
	mov	[rbx + 40], rax
	mov	[rbx + 48], r12
SITE s_store
	mov	[rbx + 56], rax
	.nops 8, 8
	xor	ecx, ecx
	cmp	r12, 1000
	setc	cl
SITE s_flags
	adc	rcx, 0			/* cf of the comparison above */
	.nops 8, 8
	mov	[rbx + 64], rcx
	cmp	r12, 1000
SITE s_branch
	jb	1f
	.nops 8, 8
	mov	qword ptr [rbx + 72], 1
	jmp	2f
	.nops 8, 8
1:	mov	qword ptr [rbx + 72], 2
	.nops 8, 8
2:	mov	rcx, 5
SITE s_step
	add	rcx, 2
	.nops 8, 8
	mov	[rbx + 80], rcx
	movq	xmm0, r12
	movq	xmm1, rax
SITE s_vector
	paddq	xmm0, xmm1
	.nops 8, 8
	movdqu	[rbx + 88], xmm0
	lea	rsi, [rbx + 8]
	lea	rdi, [rbx + 104]
	mov	ecx, 16
SITE s_rep
	rep movsb
	.nops 8, 8
	mov	[rbx + 120], rsi
	sub	[rbx + 120], rbx
SITE s_push
	push	r12
	.nops 8, 8
	pop	qword ptr [rbx + 128]
SITE s_pop_through
	push	r12
	.nops 8, 8
SITE s_pop
	pop	rcx
	.nops 8, 8
	mov	[rbx + 136], rcx
SITE s_indexed
	movzx	eax, byte ptr [rbx + r12]
	.nops 8, 8
	mov	[rbx + 144], rax
SITE s_add_memory
	add	[rbx + 152], r12
	.nops 8, 8
SITE s_constant
	mov	rax, [rip + constant]
	.nops 8, 8
	mov	[rbx + 160], rax
	mov	[rbx + 168], rsp
	add	[rbx + 168], rdi
	sub	[rbx + 168], rdi
	.nops 8, 8
	pop	r12
	pop	rbx
	ret
	.size	work, . - work
	.section .rodata
	.balign	8
constant:
	.quad	0x1122334455667788
	.section .note.GNU-stack,"",@progbits
