/* Spends its time where no counter is: in code without unwind entry or sized symbol, or, with an argument, in the
 * program's own main, which has both. */
#include <stdio.h>

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
	(void)argv;
	if (argc > 1)
		for (unsigned long i = 0; i < 30000000; i++)
			sum = sum * 33 + 7;
	else
		sum = hidden(30000000);
	printf("%lx\n", sum);
	return 0;
}
