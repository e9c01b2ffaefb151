/* A library whose constructor is busier than the program that loads it (built twice: -DLIBRARY, and without). */
#ifdef LIBRARY
unsigned long busy_sum;
__attribute__((constructor)) static void busy(void)
{
	unsigned long sum = 5;
	for (unsigned long i = 0; i < 30000000; i++)
		sum = sum * 33 + 7;
	busy_sum = sum;
}
#else
#include <stdio.h>
extern unsigned long busy_sum;
int main(void)
{
	printf("%lx\n", busy_sum);
	return 0;
}
#endif
