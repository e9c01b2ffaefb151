/* Flip entry: where the payload of a hook goes when its countdown is over, and where the
 * agent calls in to have its own registers hit.
 *
 * Unlike the other entries this one may be taken anywhere, inside the agent too: it has its
 * own stack, its own words in the thread page, and leaves every register, flag and byte of
 * stack as it found them, except for the fault.
 */
#include "layout/tls.h"
#include "faults/flip.h"
#include "regs.h"
	.intel_syntax noprefix
	.text
	.globl	sf_entry_flip
	.type	sf_entry_flip, @function
sf_entry_flip:				/* rcx: resume address; gs:[TLS_FLIP_RCX]: the site's rcx */
	mov	gs:[TLS_FLIP_RSP], rsp
	lea	rsp, [rip + sf_flip_stack + 16384]
	pushfq
	push	rcx
	push	qword ptr gs:[TLS_FLIP_RSP]
	mov	rcx, gs:[TLS_FLIP_RCX]
	PUSH_REGS
	mov	rdi, rsp
	cld
	mov	rsi, gs:[TLS_FLIP_DESC]
	call	sf_flip_hit
	POP_REGS LEAVE_RCX
	mov	rcx, [rsp + 8]
	mov	gs:[TLS_FLIP_RIP], rcx
	mov	rcx, [rsp - 32]		/* popped over rdi, rsi, rdx: still there */
	push	qword ptr [rsp + 16]
	popfq
	mov	rsp, [rsp]
	jmp	qword ptr gs:[TLS_FLIP_RIP]
	.size	sf_entry_flip, . - sf_entry_flip

/* Called by the agent from the middle of its own code, which is told of no register that
 * this may change; what for is in gs:[TLS_FLIP_DESC]. */
	.globl	sf_flip_own
	.type	sf_flip_own, @function
sf_flip_own:
	mov	gs:[TLS_FLIP_RCX], rcx
	pop	rcx
	jmp	sf_entry_flip
	.size	sf_flip_own, . - sf_flip_own
	.section .note.GNU-stack,"",@progbits
