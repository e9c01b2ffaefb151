/* An instruction of one byte between two places that are jumped to: no jump has room there, however short. */
#include <stdio.h>

int main(void)
{
	unsigned long product = 3;
	__asm__ volatile("mov $3, %%ecx\n\tjmp 2f\n"
			 "\t.globl tight\n\t.type tight, @notype\n"
			 "tight:\tnop\n"
			 "2:\tnop\n\timul $5, %0, %0\n\tdec %%ecx\n\tjz 3f\n\ttest $1, %%cl\n\tjnz 2b\n\tjmp tight\n"
			 "3:"
			 : "+a"(product)::"rcx", "cc");
	printf("%lu\n", product);
	return 0;
}
