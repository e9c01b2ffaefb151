/* Without a library, and stripped, nothing of it is found: 20,000 rounds of two instructions, and four more. */
	.text
	.globl _start
_start:
	mov $20000, %ecx
1:	dec %ecx
	jnz 1b
	mov $60, %eax
	xor %edi, %edi
	syscall
