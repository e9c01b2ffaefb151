/* One file of the project that `bench trees` makes: PART and STRIDE make each another task for the optimiser. */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

#define NAME_(part, n) part##n
#define NAME(part, n) NAME_(part, n)

static int less(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

int NAME(part, PART)(int seed)
{
	int v[256];
	for (int i = 0; i < 256; i++) {
		seed = seed * 1103515245 + PART;
		v[i] = (seed >> 16) & 1023;
	}
	qsort(v, 256, sizeof *v, less);
	int sum = 0;
	for (int i = 0; i < 256; i += STRIDE)
		sum += v[i] ^ i;
	return sum;
}
