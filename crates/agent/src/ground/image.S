/* Fixed places of the image: the entry table trampolines jump to, the stacks, the vDSO. */
	.intel_syntax noprefix
	.section .entries,"ax",@progbits
	.balign 16
	jmp	sf_entry_syscall		/* SF_BASE */
	.balign 16, 0xcc
	jmp	sf_entry_entropy		/* SF_BASE + 16 */
	.balign 16, 0xcc
	jmp	sf_entry_flip			/* SF_BASE + 32 */
	.balign 16, 0xcc
	.section .vdso,"a",@progbits
	.balign 4096
	.globl	sf_vdso
sf_vdso:
	.incbin "vdso.so"
	.balign 4096
	.section .note.GNU-stack,"",@progbits
