/* vDSO: what AT_SYSINFO_EHDR points to instead of the kernel's. Each function makes the
 * call of its name through the agent, so clocks are events like any other; the agent
 * answers from the kernel's own vDSO on the leader and from the log on followers. */
	.intel_syntax noprefix
	.text
.macro VCALL name, nr
	.globl	__vdso_\name
	.type	__vdso_\name, @function
__vdso_\name:
	.cfi_startproc
	mov	eax, \nr
	lea	rcx, [rip + 1f]
	movabs	r11, 0x2a0000000000	/* SF_BASE: jmp sf_entry_syscall */
	jmp	r11
1:	ret
	.cfi_endproc
	.size	__vdso_\name, . - __vdso_\name
	.weak	\name
	.set	\name, __vdso_\name
.endm
	VCALL	clock_gettime, 228
	VCALL	gettimeofday, 96
	VCALL	time, 201
	VCALL	getcpu, 309
	VCALL	clock_getres, 229
	.section .note.GNU-stack,"",@progbits
