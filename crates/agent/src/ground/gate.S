/* Gate: the ways into and out of the agent, and the only way into the kernel.
 *
 * Into the agent: trampolines (crates/patch) jump to sf_entry_syscall with the resume
 * address in rcx, as the hardware's syscall instruction leaves it, and to sf_entry_entropy
 * with rcx saved at gs:[TLS_RCX]. Nothing is pushed on the program's stack: the 128 bytes
 * below rsp belong to leaf functions (System V ABI, "The Stack Frame").
 *
 * Into the kernel: sf_gate, and for a few calls sf_raw_gate and sf_return_gate. Syscall user dispatch lets a call through only while the
 * selector is 0, and the gate derives the selector from the caller's token: a jump to the
 * gate without the token ends in ud2, one to the bare syscall instruction in SIGSYS.
 * The token is used up by the comparison. A selector that a fault has opened is closed behind the next call.
 *
 * Only general registers are touched anywhere in the agent; vector state is the program's.
 */
#include "layout/tls.h"
#include "regs.h"
	.intel_syntax noprefix
	.text

/* Behind PUSH_REGS. A program may have its misaligned accesses trap (EFLAGS.AC); the agent makes some. */
.macro SAVE_REST
	PUSH_REGS
	mov	rdi, rsp
	cld
	test	byte ptr [rsp + 17 * 8 + 2], 4
	jz	7f
	push	0x202
	popfq
7:
.endm

	.globl	sf_entry_syscall
	.type	sf_entry_syscall, @function
sf_entry_syscall:
	mov	gs:[TLS_RSP], rsp
	mov	rsp, gs:[TLS_STACK]
	pushfq
	push	rcx
	push	qword ptr gs:[TLS_RSP]
	mov	r11, [rsp + 16]		/* as the hardware does: r11 = rflags */
	SAVE_REST
	call	sf_on_syscall
	jmp	sf_leave_here
	.size	sf_entry_syscall, . - sf_entry_syscall

	.globl	sf_entry_entropy
	.type	sf_entry_entropy, @function
sf_entry_entropy:
	mov	gs:[TLS_RSP], rsp
	mov	rsp, gs:[TLS_STACK]
	pushfq
	push	rcx
	push	qword ptr gs:[TLS_RSP]
	mov	rcx, gs:[TLS_RCX]
	SAVE_REST
	mov	rsi, gs:[TLS_DESC]
	call	sf_on_entropy
	jmp	sf_leave_here
	.size	sf_entry_entropy, . - sf_entry_entropy

/* void sf_leave(const struct sf_regs *regs): become the program again. */
	.globl	sf_leave
	.type	sf_leave, @function
sf_leave:
	mov	rsp, rdi
sf_leave_here:
	POP_REGS LEAVE_RCX
	mov	rcx, [rsp + 8]
	mov	gs:[TLS_RIP], rcx
	mov	qword ptr gs:[TLS_INSIDE], 0
	mov	rcx, [rsp + 16]
	test	ecx, ~0xad7		/* anything but CF PF AF ZF SF IF OF and the fixed bit */
	jnz	1f
	/* popfq takes some 30 cycles, so the six arithmetic flags come back by hand: OF from
	 * an addition that overflows if it was set, the others by sahf. */
	mov	gs:[TLS_SCRATCH], rax
	mov	eax, ecx
	shl	eax, 20			/* OF, bit 11, to bit 31 */
	sar	eax, 31
	and	eax, 0x7f
	add	al, 0x01		/* 0x7f + 1 overflows, 0 + 1 does not */
	mov	ah, cl
	sahf				/* OF stays */
	mov	rax, gs:[TLS_SCRATCH]
	mov	rcx, [rsp - 32]		/* popped over rdi, rsi, rdx: still there */
	mov	rsp, [rsp]
	jmp	qword ptr gs:[TLS_RIP]
1:
	mov	rcx, [rsp - 32]
	push	qword ptr [rsp + 16]
	popfq
	mov	rsp, [rsp]
	jmp	qword ptr gs:[TLS_RIP]
	.size	sf_leave, . - sf_leave

/* Spends the token in rsi against the one in the thread page. r11: 1 if and only if it fitted. */
.macro SPEND_TOKEN place
	mov	r11, gs:[\place]
	xor	r11, rsi
	mov	rax, gs:[TLS_SECRET]
	mov	gs:[\place], rax
	jnz	sf_gate_refused		/* mov leaves the flags of xor */
	lea	r11d, [r11 + 1]
.endm

/* Opens the selector if the token fitted, and closes it otherwise, whatever it was: a handler that came between, inside
 * another one, has left it open (signal.c). */
.macro OPEN
	cmp	r11, 1
	setne	byte ptr gs:[TLS_SELECTOR]
.endm

/* Number and arguments from call[7] at rdi. */
.macro LOAD_CALL
	mov	rax, [rdi]
	mov	rsi, [rdi + 16]
	mov	rdx, [rdi + 24]
	mov	r10, [rdi + 32]
	mov	r8, [rdi + 40]
	mov	r9, [rdi + 48]
	mov	rdi, [rdi + 8]
.endm

/* int64_t sf_gate(const uint64_t call[7], uint64_t token); call[0] is the number. */
	.globl	sf_gate
	.type	sf_gate, @function
sf_gate:
	SPEND_TOKEN TLS_TOKEN
	LOAD_CALL
	.globl	sf_gate_open
sf_gate_open:				/* from here a signal must not be lost: signal.c */
	cmp	qword ptr gs:[TLS_ABORT], 0
	jne	sf_gate_pending
	OPEN
	.globl	sf_gate_syscall
sf_gate_syscall:
	syscall
	.globl	sf_gate_return
sf_gate_return:
	mov	byte ptr gs:[TLS_SELECTOR], 1
	ret
	.globl	sf_gate_pending
sf_gate_pending:
	mov	rax, -512		/* SF_NOT_MADE: a signal came before the call was made */
	ret
sf_gate_refused:
	ud2
	.size	sf_gate, . - sf_gate

/* int64_t sf_raw_gate(const uint64_t call[7], uint64_t token): for calls that no signal may
 * turn back, before the backstop stands, in children that have none, and for clones, which
 * begin at its return. Token and selector as above. */
	.globl	sf_raw_gate
	.type	sf_raw_gate, @function
sf_raw_gate:
	SPEND_TOKEN TLS_TOKEN
	LOAD_CALL
	OPEN
	.globl	sf_raw_syscall
sf_raw_syscall:
	syscall
	.globl	sf_raw_return
sf_raw_return:
	mov	byte ptr gs:[TLS_SELECTOR], 1
	ret
	.size	sf_raw_gate, . - sf_raw_gate

/* int64_t sf_spawn_gate(const uint64_t call[7], uint64_t token): clone(2) with CLONE_VM and CLONE_VFORK. The child
 * returns, and goes on with the parent's memory, this stack included. When it has left that memory the parent comes
 * back, to a stack on which nothing of its own stands any more. An error returns, to the parent. */
	.globl	sf_spawn_gate
	.type	sf_spawn_gate, @function
sf_spawn_gate:
	SPEND_TOKEN TLS_TOKEN
	LOAD_CALL
	OPEN
	syscall
	mov	byte ptr gs:[TLS_SELECTOR], 1
	test	rax, rax
	jg	1f
	ret
1:
	mov	rdi, rax
	mov	rsp, gs:[TLS_STACK]
	call	sf_spawned		/* does not return */
	ud2
	.size	sf_spawn_gate, . - sf_spawn_gate

/* int64_t sf_orphan_gate(struct sf_orphan *o, uint64_t token): a copy of this process whose parent has ended, so that
 * it is the launcher's child. 0 in the copy; else what the first clone3(2) answered, and o->pid what the second did.
 * The process between the two has the caller's memory: it stores that one number, and uses no stack. */
	.globl	sf_orphan_gate
	.type	sf_orphan_gate, @function
sf_orphan_gate:
	SPEND_TOKEN TLS_TOKEN
	mov	r8, rdi
	OPEN
	mov	esi, 88
	mov	eax, 435
	syscall
	test	rax, rax
	jnz	1f
	lea	rdi, [r8 + 88]
	mov	esi, 88
	mov	eax, 435
	syscall
	test	rax, rax
	jz	1f
	mov	[r8 + 176], rax
	xor	edi, edi
	mov	eax, 60
	syscall
	ud2
1:
	mov	byte ptr gs:[TLS_SELECTOR], 1
	ret
	.size	sf_orphan_gate, . - sf_orphan_gate

/* void sf_return_gate(uint64_t rsp, uint64_t token): return from a kernel signal frame, whose
 * second word rsp points to. The kernel comes back at sf_sigreturn_tail or where the frame
 * says (signal.c decides). Its token has a place of its own, since the interrupted code may
 * be about to use the other one. */
	.globl	sf_return_gate
	.type	sf_return_gate, @function
sf_return_gate:
	SPEND_TOKEN TLS_LEAVING
	mov	rsp, rdi
	mov	eax, 15
	OPEN
	.globl	sf_sigreturn_syscall
sf_sigreturn_syscall:
	syscall
	.globl	sf_sigreturn_return
sf_sigreturn_return:
	ud2
	.globl	sf_sigreturn_tail
sf_sigreturn_tail:
	mov	byte ptr gs:[TLS_SELECTOR], 1
	.globl	sf_sigreturn_jump
sf_sigreturn_jump:
	jmp	qword ptr gs:[TLS_RESUME]
	.size	sf_return_gate, . - sf_return_gate

/* The kernel enters here for every signal: (signo, info, ucontext), rsp on our altstack,
 * return address unused. */
	.globl	sf_signal_entry
	.type	sf_signal_entry, @function
sf_signal_entry:
	mov	rcx, rsp		/* address of the frame: pretcode */
	push	0x202			/* no AC: see SAVE_REST */
	popfq
	call	sf_on_signal
	ud2				/* it leaves through sf_sigreturn */
	.size	sf_signal_entry, . - sf_signal_entry
	.globl	sf_restorer
sf_restorer:				/* never reached: handlers do not return */
	ud2

/* int sf_guard(struct sf_guard *g): 0 now, 1 after a fault on user memory under it. */
	.globl	sf_guard_enter
	.type	sf_guard_enter, @function
sf_guard_enter:
	mov	rax, [rsp]
	mov	[rdi], rax
	lea	rax, [rsp + 8]
	mov	[rdi + 8], rax
	mov	[rdi + 16], rbx
	mov	[rdi + 24], rbp
	mov	[rdi + 32], r12
	mov	[rdi + 40], r13
	mov	[rdi + 48], r14
	mov	[rdi + 56], r15
	xor	eax, eax
	ret
	.globl	sf_guard_fail
sf_guard_fail:
	mov	rbx, [rdi + 16]
	mov	rbp, [rdi + 24]
	mov	r12, [rdi + 32]
	mov	r13, [rdi + 40]
	mov	r14, [rdi + 48]
	mov	r15, [rdi + 56]
	mov	rsp, [rdi + 8]
	mov	eax, 1
	jmp	[rdi]
	.size	sf_guard_enter, . - sf_guard_enter

/* First instruction of the program's new life: the launcher sets rip here. */
	.globl	sf_start
	.type	sf_start, @function
sf_start:
	lea	rsp, [rip + sf_stack + 65536]
	xor	ebp, ebp
	cld
	call	sf_init			/* does not return */
	ud2
	.size	sf_start, . - sf_start

	.section .note.GNU-stack,"",@progbits
