/* closed: a table that is filled, closed to stores, and read much later.
 *
 * Between the two the program sleeps for a fifth of a second, a little at a time: room for memory
 * checks, which have to see what may no longer be written. */
#include "guest.h"
#include <sys/mman.h>
#include <time.h>

__attribute__((aligned(4096))) unsigned long table[512];

__attribute__((noinline)) void flip_here(unsigned long round)
{
	__asm__ volatile("nop; nop; nop; nop; nop" : : "r"(round) : "memory");
}

int main(void)
{
	const struct timespec pause = { 0, 5000000 };
	for (unsigned long i = 0; i < 512; i++)
		table[i] = i * 0x9e3779b97f4a7c15ul;
	if (mprotect(table, sizeof table, PROT_READ))
		return 1;
	flip_here(1);
	for (int i = 0; i < 40; i++)
		nanosleep(&pause, NULL);
	unsigned long sum = 0;
	for (unsigned long i = 0; i < 512; i++)
		sum = sum * 31 + table[i];
	printf("%lx\n", sum);
	return 0;
}
