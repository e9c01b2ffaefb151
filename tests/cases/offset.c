/* The offset of -DFIELD in -DSTRUCTURE, as the compiler of the agent lays it out. */
#include "agent.h"

int main(void)
{
	return __builtin_printf("%lu", offsetof(struct STRUCTURE, FIELD)) < 0;
}
