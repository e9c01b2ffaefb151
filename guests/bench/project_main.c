/* The main file of the project that `bench trees` makes: parts.h has a line PART(n) for each other file. */
#include <stdio.h>

#define PART(n) int part##n(int);
#include "parts.h"
#undef PART
#define PART(n) + part##n(n)

int main(void)
{
	printf("%d\n", 0
#include "parts.h"
	);
	return 0;
}
