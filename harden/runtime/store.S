/*
 * The way from a store that is not yet logged into the log, called by inline code of the pass. Assembly, because the
 * caller gives up three registers only: a call that saved all of them would cost more than the log entry.
 *
 *     in       r10 word address, r11 key | 0xff, rax its home slot        (see abi.h)
 *     changed  rcx, rdx, flags
 *
 * __sf_slow8 makes the entry itself when the whole word is new in the first run, its slot is free and it lies outside the
 * stack; this is rule R2 of the paper as Figure 4b spells it out (the numbers on the right are its lines). In all other
 * cases, and in the second run, where sf_tls.limit is 0, it goes to the C code.
 *
 * Invariant: general registers only; vector registers of the program are live here.
 *
 * Shared with abi.h: offsets in struct sf_tls, asserted in core.c.
 */
#define TLS_CURSOR 32
#define TLS_LIMIT 40
#define TLS_SUM 48
#define TLS_LOW 56
#define TLS_LENGTH 64

	.text
	.globl	__sf_slow8
	.type	__sf_slow8, @function
	.p2align 5
__sf_slow8:
	movq	__sf_tls@gottpoff(%rip), %rcx
	movq	%fs:TLS_CURSOR(%rcx), %rdx
	cmpq	%fs:TLS_LIMIT(%rcx), %rdx
	jae	.Lgeneral8                      /* second run, or the log is full, or ranges are ignored */
	pushq	%r11
	movq	%r10, %r11
	subq	%fs:TLS_LOW(%rcx), %r11
	cmpq	%fs:TLS_LENGTH(%rcx), %r11
	popq	%r11
	jb	.Lgeneral8                      /* the stack of this run */
	movq	(%rax), %rcx
	xorq	%r11, %rcx
	testl	$0xfff00, %ecx
	jz	.Lgeneral8                      /* 1: another word of this run, or other bytes of this word */
	movq	$-1, %rcx
	shlq	$56, %rcx
	orq	%r10, %rcx
	movq	%rcx, (%rdx)                    /* where */
	movq	(%r10), %rcx
	movq	%rcx, 8(%rdx)                   /* 2: O_v := v */
	cmpq	(%rax), %r11
	je	.Ltwice                         /* 3: O_c must not hold v yet */
	movq	%r11, (%rax)                    /* 4: O_c := true */
	cmpq	(%r10), %rcx
	jne	.Lnot_kept                      /* 5: v = O_v? */
	xorq	(%rdx), %rcx
	addq	$16, %rdx
	pushq	%rax
	movq	__sf_tls@gottpoff(%rip), %rax
	addq	%rcx, %fs:TLS_SUM(%rax)
	movq	%rdx, %fs:TLS_CURSOR(%rax)
	popq	%rax
	ret

.Lgeneral8:
	pushq	%r11
	movl	$0xff, %r11d
	call	__sf_slow
	popq	%r11
	ret
.Ltwice:
	leaq	.Ltwice_text(%rip), %rdi
	jmp	.Lfail
.Lnot_kept:
	leaq	.Lnot_kept_text(%rip), %rdi
.Lfail:
	movq	%r10, %rsi
	movq	(%rax), %rdx
	andq	$-16, %rsp
	call	sf_differ
	ud2
	.size	__sf_slow8, .-__sf_slow8

/* r10 word address, r11 bytes of it. Keeps every general register. */
	.macro	to_c name, function
	.globl	\name
	.type	\name, @function
	.p2align 4
\name:
	pushq	%rax
	pushq	%rcx
	pushq	%rdx
	pushq	%rsi
	pushq	%rdi
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
	pushq	%rbp
	movq	%rsp, %rbp
	andq	$-16, %rsp
	movq	%r10, %rdi
	movq	%r11, %rsi
	call	\function
	movq	%rbp, %rsp
	popq	%rbp
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rdi
	popq	%rsi
	popq	%rdx
	popq	%rcx
	popq	%rax
	ret
	.size	\name, .-\name
	.endm

	to_c	__sf_slow, sf_store_slow
	to_c	__sf_check, sf_store_check

	.section .rodata
.Ltwice_text:
	.asciz	"a word was logged twice in the first run"
.Lnot_kept_text:
	.asciz	"the log did not keep an old value"
	.section .note.GNU-stack,"",@progbits
