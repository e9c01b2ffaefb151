/* A program that survives wild addresses: a handler jumps out of the load that faulted, and the next load is
 * made as if nothing had been. It tells how often that was, and whether a later load came back
 * with another address in its register than it was given.
 *
 * Alone it doubles numbers as well, by one instruction. With an argument, two threads load beside each other.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

long load(long *at, long **kept);
long twice(long x);
__asm__(".globl load, twice\n\t.type load, @function\n\t.type twice, @function\n"
	"load:\tmov (%rdi), %rax\n\tmov %rdi, (%rsi)\n\tret\n\t.size load, . - load\n"
	"twice:\tlea (%rdi,%rdi,1), %rax\n\tnopl 0(%rax)\n\tret\n\t.size twice, . - twice\n");

enum { CELLS = 64 };
static long cells[CELLS];
static __thread sigjmp_buf back;
struct seen {
	int caught, moved;
	long sum;
};

static void jump(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

static void *look(void *at)
{
	volatile struct seen *seen = at;
	for (volatile int i = 0; i < CELLS; i++) {
		long *kept;
		if (sigsetjmp(back, 1)) {
			seen->caught++;
			continue;
		}
		seen->sum += load(&cells[i], &kept);
		seen->moved += kept != &cells[i];
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = jump };
	struct seen first = { 0 }, second = { 0 };
	pthread_t thread;

	(void)argv;
	for (int i = 0; i < CELLS; i++)
		cells[i] = i;
	sigaction(SIGSEGV, &action, 0);
	if (argc > 1 && pthread_create(&thread, 0, look, &second))
		return 1;
	look(&first);
	if (argc > 1)
		pthread_join(thread, 0);
	printf("caught %d moved %d\n", first.caught + second.caught, first.moved + second.moved);
	if (argc == 1) {
		long doubled = 0;
		for (long i = 0; i < CELLS; i++)
			doubled += twice(i);
		printf("sum %ld doubled %ld\n", first.sum, doubled);
	}
	return 0;
}
