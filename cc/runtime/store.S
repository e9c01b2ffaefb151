/*
 * The way from a store that is not yet logged into the log, called by inline code of the pass. Assembly, because the
 * caller gives up few registers: a call that saved all of them would cost more than the log entry.
 *
 *     in       r10 word address, r11 key | 0xff, rax its home slot        (see abi.h; low bits of r10: not aligned)
 *     changed  rcx, rdx, r8, r9, flags
 *
 * __sf_slow8 makes the entry itself when the whole word is new in the first run, its slot is free and it lies outside the
 * stack; this is rule R2 of the paper as Figure 4b spells it out (the numbers on the right are its lines). In all other
 * cases, and in the second run, where sf_tls.limit is 0, it goes to the C code.
 *
 * With --recover sf_tls.limit is 0 in both runs, and sf_tls.shadow names the second log in the first: an entry of a whole word is then made in
 * both, each by a reading of its own, the second one's place by what the tag says. Each is counted only when both are alike.
 *
 * An entry's share of the sum is taken from the tag, not from what went into the entry: where one of both changes on the way, the
 * log does not have its sum. Fields of struct sf_tls have no register for their base (abi.h).
 *
 * Invariant: general registers only; vector registers of the program are live here.
 *
 * Shared with abi.h and recover.c: offsets (layout.h).
 */
#include "layout.h"

#define TLS(FIELD) __sf_tls@tpoff+SF_TLS_##FIELD
#define SECOND 0x100 /* 1 << SF_EPOCH_SHIFT: of keys, the second run's have it and the first run's do not */

	.text
	.globl	__sf_slow8
	.type	__sf_slow8, @function
	.p2align 5
__sf_slow8:
	movq	%fs:TLS(CURSOR), %rdx
	cmpq	%fs:TLS(LIMIT), %rdx
	jae	.Lshadow8                         /* second run, or the log is full, or ranges are ignored */
	movq	%r10, %r8
	subq	%fs:TLS(STACK_LOW), %r8
	cmpq	%fs:TLS(STACK_LENGTH), %r8
	jb	.Lgeneral8                      /* the stack of this run */
	testb	$7, %r10b
	jnz	.Lgeneral8                      /* parts of two words */
	movq	(%rax), %r8
	xorq	%r11, %r8
	testl	$0x1ff00, %r8d
	jz	.Lmore8                         /* 1: another word of this run, or other bytes of this word */
.Lnew8:
	movq	%r10, (%rdx)                    /* where: no byte is missing */
	movq	(%r10), %r9
	movq	%r9, 8(%rdx)                    /* 2: O_v := v */
	cmpq	(%rax), %r11
	je	.Ltwice                         /* 3: O_c must not hold v yet */
	movq	%r11, (%rax)                    /* 4: O_c := true */
	movq	8(%rdx), %r9
	cmpq	(%r10), %r9
	jne	.Lnot_kept                      /* 5: v = O_v? */
	movq	%r11, %r8
	shrq	$SF_WORD_SHIFT, %r8
	xorq	%r8, %r9
	addq	$16, %rdx
	addq	%r9, %fs:TLS(SUM)
	movq	%rdx, %fs:TLS(CURSOR)
	ret

/* The same in two logs. */
.Lshadow8:
	movq	%fs:TLS(SHADOW), %rcx
	testq	%rcx, %rcx
	jz	.Lgeneral8
	cmpq	%fs:TLS(SHADOW_AGAIN), %rcx
	jne	.Lgeneral8
	cmpq	%fs:TLS(SHADOW_END), %rdx
	jae	.Lgeneral8
	movq	%r10, %r8
	subq	%fs:TLS(STACK_LOW), %r8
	cmpq	%fs:TLS(STACK_LENGTH), %r8
	jb	.Lgeneral8
	testb	$7, %r10b
	jnz	.Lgeneral8
	movq	(%rax), %r8
	xorq	%r11, %r8
	testl	$0x1ff00, %r8d
	jz	.Lgeneral8
	movq	%r10, (%rdx)
	movq	(%r10), %r8
	movq	%r8, 8(%rdx)                    /* 2 */
	cmpq	(%rax), %r11
	je	.Ltwice                         /* 3 */
	movq	%r11, (%rax)                    /* 4 */
	movq	8(%rdx), %r8
	cmpq	(%r10), %r8
	jne	.Lnot_kept                      /* 5 */
	cmpq	%fs:TLS(CURSOR), %rdx
	jne	.Lfirst_astray
	movq	SF_SHADOW_COUNT(%rcx), %r9
	shlq	$4, %r9
	addq	SF_SHADOW_ENTRIES(%rcx), %r9
	movq	(%rax), %r8
	shrq	$SF_WORD_SHIFT, %r8
	movq	%r8, (%r9)
	movq	(%r8), %r8
	movq	%r8, 8(%r9)
	movq	%fs:TLS(SHADOW_AGAIN), %rcx
	movq	SF_SHADOW_COUNT(%rcx), %r8
	shlq	$4, %r8
	addq	SF_SHADOW_ENTRIES(%rcx), %r8
	cmpq	%r8, %r9
	jne	.Lsecond_astray
	movq	(%r9), %r8
	cmpq	(%rdx), %r8
	jne	.Llogs_differ
	movq	8(%r9), %r8
	cmpq	8(%rdx), %r8
	jne	.Llogs_differ
	movabsq	$0x9e3779b97f4a7c15, %r8        /* recover.c: weigh */
	movq	(%r10), %r9
	xorq	%r10, %r9
	addq	%r8, %r9
	addq	%r9, SF_SHADOW_SUM(%rcx)
	incq	SF_SHADOW_COUNT(%rcx)
	movq	8(%rdx), %r9
	movq	(%rax), %r8
	shrq	$SF_WORD_SHIFT, %r8
	xorq	%r8, %r9
	addq	%r9, %fs:TLS(SUM)
	addq	$16, %rdx
	movq	%rdx, %fs:TLS(CURSOR)
	ret

/* A word that was read (--validate=async): its tag has no bytes yet. */
.Lmore8:
	cmpq	$0xff, %r8
	je	.Lnew8
.Lgeneral8:
	pushq	%r11
	movl	%r10d, %ecx
	andl	$7, %ecx
	movl	$0xff, %r11d
	shll	%cl, %r11d                      /* from bit 8 on: bytes of the next word */
	call	__sf_slow
	popq	%r11
	ret
	.size	__sf_slow8, .-__sf_slow8

/*
 * The same for a part of a word: r11 key | bytes of the store (one bit each), r9 these bytes as a mask of 64 bits; also
 * changes rsi. Only the store's own bytes are compared: the others may belong to another thread.
 */
	.globl	__sf_slow_part
	.type	__sf_slow_part, @function
	.p2align 5
__sf_slow_part:
	movq	%fs:TLS(CURSOR), %rdx
	cmpq	%fs:TLS(LIMIT), %rdx
	jae	.Lsecond_part
	movq	%r10, %r8
	subq	%fs:TLS(STACK_LOW), %r8
	cmpq	%fs:TLS(STACK_LENGTH), %r8
	jb	.Lgeneral_part
	testb	$7, %r10b
	jnz	.Lgeneral_part
	movq	(%rax), %rsi
	movq	%rsi, %r8
	xorq	%r11, %r8
	testl	$0x1ff00, %r8d
	jz	.Lmore                          /* 1 */
	movq	%r11, %r8
	notq	%r8
	shlq	$56, %r8
	orq	%r10, %r8
	movq	%r8, (%rdx)                     /* where, and the bytes that are missing */
	movq	(%r10), %rsi
	movq	%rsi, 8(%rdx)                   /* 2 */
	cmpq	(%rax), %r11
	je	.Ltwice                         /* 3 */
	movq	%r11, (%rax)                    /* 4 */
	movq	%r11, %r8
	notq	%r8
	shlq	$56, %r8
	movq	8(%rdx), %rsi
	xorq	%rsi, %r8
	xorq	(%r10), %rsi
	testq	%r9, %rsi
	jne	.Lnot_kept                      /* 5 */
	movq	%r11, %rcx
	shrq	$SF_WORD_SHIFT, %rcx
	xorq	%rcx, %r8
	movq	$1, %fs:TLS(PARTIAL)
	addq	$16, %rdx
	addq	%r8, %fs:TLS(SUM)
	movq	%rdx, %fs:TLS(CURSOR)
	movq	%rdx, %fs:TLS(GROWS)
	ret

/* More bytes of a word that the first run has logged in part: rsi its tag, r8 what differs from the store's. */
.Lmore:
	cmpq	$0xff, %r8
	ja	.Lgeneral_part                  /* another word */
	andq	%r11, %r8                       /* bytes of the store that are not logged */
	jz	.Lgeneral_part
	pushq	%rdi
	cmpq	%rdx, %fs:TLS(GROWS)
	jne	.Lown_entry
	cmpb	%r8b, %r11b
	jne	.Lown_entry                     /* some are, and may have changed since */

/* None of them is, and the last entry may be this word's, of a text that is written byte by byte: it takes these in, if its old
   value still has them. Its share of the sum is taken from the store's bytes, not from the address as it will be written. */
	movq	-16(%rdx), %rdi
	xorq	%r10, %rdi
	rolq	$8, %rdi                        /* the bytes that it has not, if it is this word's */
	cmpq	$0xff, %rdi
	ja	.Lown_entry
	xorl	%r8d, %edi
	testb	%r8b, %dil
	jnz	.Lown_entry
	movq	-8(%rdx), %r8
	xorq	(%r10), %r8
	testq	%r9, %r8
	jnz	.Lchanged                       /* by another thread, before these were this one's */
	cmpq	(%rax), %rsi
	jne	.Ltwice                         /* 3 */
	orq	%r11, %rsi
	movq	%rsi, (%rax)                    /* 4 */
	rorq	$8, %rdi
	orq	%r10, %rdi
	movq	-16(%rdx), %rsi
	xorq	-8(%rdx), %rsi
	movq	%rdi, -16(%rdx)
	movq	%r11, %rdi
	shlq	$56, %rdi
	xorq	%rsi, %rdi
	subq	%rsi, %rdi
	movq	-8(%rdx), %rsi
	xorq	(%r10), %rsi
	testq	%r9, %rsi
	jne	.Lnot_kept                      /* 5 */
	addq	%rdi, %fs:TLS(SUM)
	popq	%rdi
	ret

.Lchanged:
	movzbl	%r11b, %r8d
.Lown_entry:
	xorq	$0xff, %r8
	shlq	$56, %r8
	orq	%r10, %r8
	movq	%r8, (%rdx)
	movq	(%r10), %rdi
	movq	%rdi, 8(%rdx)                   /* 2 */
	cmpq	(%rax), %rsi
	jne	.Ltwice                         /* 3 */
	movl	%esi, %ecx
	orq	%r11, %rsi
	movq	%rsi, (%rax)                    /* 4 */
	movq	8(%rdx), %rsi
	popq	%rdi
	xorl	(%rax), %ecx                    /* the bytes that it now has */
	notq	%rcx
	shlq	$56, %rcx
	xorq	%rsi, %rcx
	xorq	(%r10), %rsi
	testq	%r9, %rsi
	jne	.Lnot_kept                      /* 5 */
	movq	%r11, %r8
	shrq	$SF_WORD_SHIFT, %r8
	xorq	%rcx, %r8
	movq	$1, %fs:TLS(PARTIAL)
	addq	$16, %rdx
	addq	%r8, %fs:TLS(SUM)
	movq	%rdx, %fs:TLS(CURSOR)
	movq	%rdx, %fs:TLS(GROWS)
	ret

/* R6 for the bytes of a word in its home slot: the first run's tag, whose bytes go to the mask, or the second's. An address
   that is not aligned has bits that no tag has. What changes of a tag is changed in memory: who comes here in the first run makes no
   tag of it that its store would find. */
.Lsecond_part:
	testl	$SECOND, %r11d
	jz	.Lgeneral_part                  /* still the first run */
	movq	(%rax), %rsi
	leaq	-SECOND(%r11), %r8
	xorq	%rsi, %r8
	movq	%rax, %rdx
	subq	%fs:TLS(TABLE), %rdx
	shrq	$3, %rdx
	addq	%fs:TLS(TABLE), %rdx
	addq	%fs:TLS(INDEX_MASK), %rdx              /* its mask lies at 8(%rdx) */
	cmpq	$0xff, %r8
	ja	.Lagain_part
	testb	%r11b, %r8b
	jnz	.Lgeneral_part                  /* bytes that the first run has not written */
	movb	%sil, 8(%rdx)
	orl	$SECOND, %r8d                   /* and bytes that are not this store's */
	xorq	%r8, (%rax)
	ret
.Lagain_part:
	movq	%rsi, %r8
	xorq	%r11, %r8
	cmpq	$0xff, %r8
	ja	.Lgeneral_part
	movzbl	8(%rdx), %r8d
	orl	%esi, %r8d
	notl	%r8d
	testb	%r11b, %r8b
	jnz	.Lgeneral_part
	orb	%r11b, (%rax)
	ret

.Lgeneral_part:
	pushq	%r11
	xorq	%fs:TLS(EPOCH_KEY), %r11
	andl	$0x7ff, %r11d                   /* bytes: up to 4 from byte 7 on, so 11 bits */
	call	__sf_slow
	popq	%r11
	ret
	.size	__sf_slow_part, .-__sf_slow_part

/*
 * --validate=async: a load of a word that the run's table does not show. r10 word address, r11 key without bytes, rax its
 * home slot. An entry of which no byte is meant (log.c: log_read); the stack of this run needs none.
 */
	.globl	__sf_load
	.type	__sf_load, @function
	.p2align 5
__sf_load:
	movq	%r10, %r8
	subq	%fs:TLS(STACK_LOW), %r8
	cmpq	%fs:TLS(STACK_LENGTH), %r8
	jb	.Lloaded
	movq	%fs:TLS(CURSOR), %rdx
	cmpq	%fs:TLS(LIMIT), %rdx
	jae	.Lgeneral_load                  /* second run, or the log is full, or ranges are ignored */
	testb	$7, %r10b
	jnz	.Lgeneral_load
	movq	(%rax), %r8
	xorq	%r11, %r8
	testl	$0x1ff00, %r8d
	jz	.Lgeneral_load                  /* another word of this run */
	movabsq	$0xff00000000000000, %r8
	orq	%r10, %r8
	movq	%r8, (%rdx)
	movq	(%r10), %r9
	movq	%r9, 8(%rdx)
	movq	%r11, (%rax)
	xorq	%r8, %r9
	movq	$1, %fs:TLS(PARTIAL)
	addq	$16, %rdx
	addq	%r9, %fs:TLS(SUM)
	movq	%rdx, %fs:TLS(CURSOR)
.Lloaded:
	ret
.Lgeneral_load:
	call	__sf_load_c
	ret
	.size	__sf_load, .-__sf_load

.Ltwice:
	leaq	.Ltwice_text(%rip), %rdi
	jmp	.Lfail
.Lnot_kept:
	leaq	.Lnot_kept_text(%rip), %rdi
	jmp	.Lfail
.Llogs_differ:
	leaq	sf_logs_differ(%rip), %rdi
	jmp	.Lfail
.Lfirst_astray:
	movq	%rdx, %r9
.Lsecond_astray:
	movq	%r10, %rdi
	movq	%r9, %rsi
	andq	$-16, %rsp
	call	sf_entry_astray
	ud2
.Lfail:
	movq	%r10, %rsi
	movq	(%rax), %rdx
	movq	%r9, %rcx
	andq	$-16, %rsp
	call	sf_differ
	ud2

/* r10 word address, r11 bytes of it and of the next; both go to the function also as they were pushed (struct sf_store). Keeps every
   general register. */
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
	movq	%rbp, %rdx
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

/* Phase I begins. Keeps what a function has to keep, so that a retry can come back to here (sf_resume). rdi: handler. */
	.globl	__sf_begin
	.type	__sf_begin, @function
	.p2align 4
__sf_begin:
	.cfi_startproc
	movq	__sf_tls@gottpoff(%rip), %rax
	movq	%rbx, %fs:SF_TLS_KEPT(%rax)
	movq	%rbp, %fs:SF_TLS_KEPT+8(%rax)
	movq	%r12, %fs:SF_TLS_KEPT+16(%rax)
	movq	%r13, %fs:SF_TLS_KEPT+24(%rax)
	movq	%r14, %fs:SF_TLS_KEPT+32(%rax)
	movq	%r15, %fs:SF_TLS_KEPT+40(%rax)
	movq	(%rsp), %rcx
	movq	%rcx, %fs:SF_TLS_KEPT+48(%rax)
	movq	%rsp, %fs:SF_TLS_KEPT+56(%rax)
	jmp	sf_begin
	.cfi_endproc
	.size	__sf_begin, .-__sf_begin

/* Back to the call of __sf_begin, from wherever a mismatch was noticed. rdi: handler. */
	.globl	sf_resume
	.hidden	sf_resume
	.type	sf_resume, @function
	.p2align 4
sf_resume:
	movq	__sf_tls@gottpoff(%rip), %rax
	movq	%fs:SF_TLS_KEPT(%rax), %rbx
	movq	%fs:SF_TLS_KEPT+8(%rax), %rbp
	movq	%fs:SF_TLS_KEPT+16(%rax), %r12
	movq	%fs:SF_TLS_KEPT+24(%rax), %r13
	movq	%fs:SF_TLS_KEPT+32(%rax), %r14
	movq	%fs:SF_TLS_KEPT+40(%rax), %r15
	movq	%fs:SF_TLS_KEPT+48(%rax), %rcx
	movq	%fs:SF_TLS_KEPT+56(%rax), %rsp
	movq	%rcx, (%rsp)
	cld
	jmp	sf_begin
	.size	sf_resume, .-sf_resume

/* The same place, where the driver goes on with the second run (split.c). */
	.globl	sf_second
	.hidden	sf_second
	.type	sf_second, @function
	.p2align 4
sf_second:
	movq	__sf_tls@gottpoff(%rip), %rax
	movq	%fs:SF_TLS_KEPT(%rax), %rbx
	movq	%fs:SF_TLS_KEPT+8(%rax), %rbp
	movq	%fs:SF_TLS_KEPT+16(%rax), %r12
	movq	%fs:SF_TLS_KEPT+24(%rax), %r13
	movq	%fs:SF_TLS_KEPT+32(%rax), %r14
	movq	%fs:SF_TLS_KEPT+40(%rax), %r15
	movq	%fs:SF_TLS_KEPT+48(%rax), %rcx
	movq	%fs:SF_TLS_KEPT+56(%rax), %rsp
	movq	%rcx, (%rsp)
	cld
	movl	$1, %eax
	ret
	.size	sf_second, .-sf_second

/*
 * Waiting for a condition: what a function has to keep, and where it returns to, go to sf_wait (split.c), which comes back
 * by sf_split_jump alone.
 */
	.macro	begins name
	.globl	\name
	.type	\name, @function
	.p2align 4
\name:
	.endm

	begins	__sf_w_pthread_cond_wait
	xorl	%edx, %edx
	xorl	%ecx, %ecx
	xorl	%r9d, %r9d
	jmp	.Lwait
	.size	__sf_w_pthread_cond_wait, .-__sf_w_pthread_cond_wait

	begins	__sf_w_pthread_cond_timedwait
	xorl	%ecx, %ecx
	movl	$1, %r9d
	jmp	.Lwait
	.size	__sf_w_pthread_cond_timedwait, .-__sf_w_pthread_cond_timedwait

	begins	__sf_w_pthread_cond_clockwait
	xchgq	%rdx, %rcx
	movl	$2, %r9d
	jmp	.Lwait
	.size	__sf_w_pthread_cond_clockwait, .-__sf_w_pthread_cond_clockwait

	begins	__sf_w_cnd_wait
	xorl	%edx, %edx
	xorl	%ecx, %ecx
	movl	$3, %r9d
	jmp	.Lwait
	.size	__sf_w_cnd_wait, .-__sf_w_cnd_wait

	begins	__sf_w_cnd_timedwait
	xorl	%ecx, %ecx
	movl	$4, %r9d
	jmp	.Lwait
	.size	__sf_w_cnd_timedwait, .-__sf_w_cnd_timedwait

/* std::condition_variable::wait(std::unique_lock &): a POSIX condition, and the lock's mutex comes first in it. */
	begins	__sf_w_cxx_wait
	movq	(%rsi), %rsi
	xorl	%edx, %edx
	xorl	%ecx, %ecx
	xorl	%r9d, %r9d
	jmp	.Lwait
	.size	__sf_w_cxx_wait, .-__sf_w_cxx_wait

	.type	.Lwait, @function
.Lwait:
	.cfi_startproc
	movq	%rsp, %rax
	subq	$72, %rsp
	.cfi_adjust_cfa_offset 72
	movq	%rbx, (%rsp)
	movq	%rbp, 8(%rsp)
	movq	%r12, 16(%rsp)
	movq	%r13, 24(%rsp)
	movq	%r14, 32(%rsp)
	movq	%r15, 40(%rsp)
	movq	%rax, 48(%rsp)
	movq	%rsp, %r8
	call	sf_wait
	ud2
	.cfi_endproc
	.size	.Lwait, .-.Lwait

/* rdi the stack as it was kept, rdx its length, rcx the registers, esi what the wait returns. Works below what it writes. */
	.globl	sf_split_jump
	.hidden	sf_split_jump
	.type	sf_split_jump, @function
	.p2align 4
sf_split_jump:
	movl	%esi, %eax
	movq	%rcx, %r9
	movq	%rdi, %rsi
	movq	48(%r9), %rdi
	leaq	-256(%rdi), %rsp
	movq	%rdx, %rcx
	cld
	rep movsb
	movq	(%r9), %rbx
	movq	8(%r9), %rbp
	movq	16(%r9), %r12
	movq	24(%r9), %r13
	movq	32(%r9), %r14
	movq	40(%r9), %r15
	movq	48(%r9), %rsp
	ret
	.size	sf_split_jump, .-sf_split_jump

	to_c	__sf_slow, sf_store_slow
	to_c	__sf_check, sf_store_check
	to_c	__sf_before, sf_store_ready
	to_c	__sf_astray, sf_store_astray
	to_c	__sf_load_c, sf_load_slow

	.section .rodata
.Ltwice_text:
	.asciz	"a word was logged twice in the first run"
.Lnot_kept_text:
	.asciz	"the log did not keep an old value"
	.section .note.GNU-stack,"",@progbits
