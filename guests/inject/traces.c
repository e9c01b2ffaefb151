/* Traces process 1 of its sandbox, and stops it for ever if it may. */
#include <stdio.h>
#include <sys/ptrace.h>
#include <unistd.h>

int main(void)
{
	if (ptrace(PTRACE_ATTACH, 1, 0, 0) == 0)
		pause();
	puts("refused");
	return 0;
}
