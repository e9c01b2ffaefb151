/* Spends its time where no counter is: in code without unwind entry or sized symbol, for so many rounds of four
 * instructions as it is told; or, told nothing, in the program's own main, which has both. */
#include <stdio.h>
#include <stdlib.h>

extern unsigned long hidden(unsigned long n);
__asm__(".text\n"
	".byte 0xcc\n"
	"hidden: mov %rdi, %rax\n"
	"1: imul $33, %rax, %rax\n"
	"add $7, %rax\n"
	"dec %rdi\n"
	"jnz 1b\n"
	"ret\n");

int main(int argc, char **argv)
{
	unsigned long sum = 5;
	if (argc > 1)
		sum = hidden(strtoul(argv[1], NULL, 10));
	else
		for (unsigned long i = 0; i < 30000000; i++)
			sum = sum * 33 + 7;
	printf("%lx\n", sum);
	return 0;
}
