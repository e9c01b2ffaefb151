/* One instruction of each kind, and what becomes of its operands: every case leaves one number, which is printed on a line of its
 * own as sixteen hexadecimal digits. Right numbers, and those after each fault, are worked out by hand in recipes.rs.
 *
 * Freestanding: what it executes is what is here. */
	.data
	.balign 64
words:	.quad 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
copies:	.fill 16, 8, 0
buffer:	.fill 8, 8, 0
cell:	.quad 0x100, 0x200
word:	.quad 4
shared:	.quad 10
vector:	.quad 1, 2
stored:	.quad 0, 0
letters: .ascii "abcdef"
	.bss
	.balign 8
results: .fill 64, 8, 0
text:	.fill 64 * 17, 1, 0

/* Before a place that has a name, which somebody may jump to: a jump of five bytes goes over no such place. */
.macro room
	nop
	nop
	nop
	nop
.endm
/* The number in rax is the next case's. */
.macro result
	lea results(%rip), %r15
	mov %rax, (%r15,%rbx,8)
	inc %rbx
.endm
/* rax, with rcx above it. */
.macro results_of_two
	shl $32, %rcx
	or %rcx, %rax
	result
.endm

	.text
	.globl _start
	.type _start, @function
_start:
	xor %ebx, %ebx

	xor %eax, %eax
s_imm:	mov $0x10, %eax
	result

	mov $5, %ecx
	mov $7, %eax
s_regs:	add %rcx, %rax
	results_of_two

	xor %eax, %eax
s_high:	mov $0x12, %ah
	result

	mov $-1, %rax
	mov $3, %ecx
s_narrow: mov %ecx, %eax
	result

s_rip:	mov cell(%rip), %rax
	mov cell(%rip), %rcx
	results_of_two

	lea buffer(%rip), %rsi
	mov $1, %edi
	mov $0x40, %ecx
s_store: mov %rcx, 8(%rsi,%rdi,8)
	mov 16(%rsi), %rax
	mov (%rsi), %rcx
	results_of_two

	lea word(%rip), %rsi
s_rmw:	addq $1, (%rsi)
	mov (%rsi), %rax
	result

	mov $0x21, %ecx
s_push:	push %rcx
	room
s_pop:	pop %rax
	result

	/* A stack of two words, whose lower one is popped. */
	mov %rsp, %rbp
	and $-64, %rsp
	sub $64, %rsp
	mov %rsp, %r14
	movq $0x70, (%rsp)
	movq $0x71, 8(%rsp)
s_popm:	pop %rax
	mov %rsp, %rcx
	sub %r14, %rcx
	mov %rbp, %rsp
	results_of_two

	xor %eax, %eax
	mov $2, %edi
s_call:	call twice
	result

	/* Back to one of two places, sixteen bytes apart. */
	lea s_back(%rip), %rax
	push %rax
s_ret:	ret
	.balign 32
s_back:	mov $1, %eax
	jmp 1f
	.balign 16
	mov $2, %eax
1:	result

	lea s_there(%rip), %rcx
s_jump:	jmp *%rcx
	.balign 32
s_there: mov $1, %eax
	jmp 1f
	.balign 16
	mov $2, %eax
1:	result

	xor %eax, %eax
	mov $7, %ecx
s_cmp:	cmp $7, %ecx
	room
s_jz:	jz 1f
	add $2, %eax
1:	add $1, %eax
	result

	jmp s_ip
	.balign 32
s_ip:	mov $1, %eax
	jmp 1f
	.balign 16
	mov $2, %eax
1:	result

	xor %eax, %eax
	mov $5, %ecx
s_loop:	add $1, %rax
	dec %ecx
	jnz s_loop
	result

	xor %eax, %eax
	mov $6, %ecx
1:	add $1, %rax
s_count: loop 1b
	result

	lea words(%rip), %rsi
	lea copies(%rip), %rdi
	mov $8, %ecx
s_rep:	rep movsq
	lea words(%rip), %rdx
	mov %rsi, %rcx
	sub %rdx, %rcx
	lea copies(%rip), %rdx
	xor %eax, %eax
	mov $16, %esi
1:	add -8(%rdx,%rsi,8), %rax
	dec %esi
	jnz 1b
	results_of_two

	lea letters(%rip), %rdi
	mov $6, %ecx
	mov $0x64, %eax
s_scas:	repne scasb
	mov %rcx, %rax
	result

	mov $1, %eax
	shl $32, %rax
	mov $2, %ecx
	shl $32, %rcx
s_mul:	mul %rcx
	mov %rdx, %rcx
	results_of_two

	mov $100, %eax
	xor %edx, %edx
	mov $2, %ecx
s_div:	div %ecx
	result

	lea shared(%rip), %rsi
	mov $3, %eax
s_xadd:	lock xadd %rax, (%rsi)
	mov (%rsi), %rcx
	results_of_two

	lea vector(%rip), %rsi
	lea stored(%rip), %rdi
	nop
	nop
	nop
s_vload: movdqu (%rsi), %xmm1
	room
s_vadd:	paddq %xmm1, %xmm1
	room
s_vstore: movups %xmm1, (%rdi)
	mov (%rdi), %rax
	mov 8(%rdi), %rcx
	results_of_two

	xor %eax, %eax
s_inc:	add $1, %rax
	result

	mov $2, %edi
s_lea:	lea 4(%rdi,%rdi,2), %rax
	result

	xor %eax, %eax
s_adc:	adc $0, %rax
	result

	xor %eax, %eax
	mov $1, %ecx
	cmp $1, %ecx
s_set:	sete %al
	result

	mov $1, %eax
	mov $2, %ecx
	cmp $1, %eax
s_cmov:	cmovne %rcx, %rax
	result

	/* In hexadecimal, line by line. */
	lea text(%rip), %rdi
	lea results(%rip), %rsi
	mov %ebx, %r8d
1:	mov (%rsi), %rax
	add $8, %rsi
	mov $16, %ecx
2:	rol $4, %rax
	mov %eax, %edx
	and $15, %edx
	add $0x30, %edx
	cmp $0x3a, %edx
	jb 3f
	add $0x27, %edx
3:	mov %dl, (%rdi)
	inc %rdi
	dec %ecx
	jnz 2b
	movb $10, (%rdi)
	inc %rdi
	dec %r8d
	jnz 1b
	lea text(%rip), %rsi
	mov %rdi, %rdx
	sub %rsi, %rdx
	mov $1, %edi
	mov $1, %eax
	syscall
	xor %edi, %edi
	mov $231, %eax
	syscall
	ud2
	.size _start, . - _start

	.type twice, @function
twice:	lea (%rdi,%rdi), %rax
	ret
	.size twice, . - twice
	.section .note.GNU-stack, "", @progbits
