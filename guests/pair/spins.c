/* Spins: who waits in a loop without a call, and who only computes.
 *
 *   spins thread    a thread waits for the first one, which sleeps for a moment and would let it go
 *   spins process   the same of a child, by memory that both have in common
 *   spins compute   a thread computes for as long as that; the first one waits for its end
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int *go;
static volatile unsigned long count;

static void *waits(void *arg)
{
	while (!*go)
		;
	return arg;
}

static void *computes(void *arg)
{
	struct timespec from, now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
	/* Each step waits for the one before: four cycles or more, so two seconds at 4 GHz, whatever the processor does at once. */
	unsigned long step, x = 1;
	for (step = 0; step < 2000000000ul; step++)
		x = x * 6364136223846793005ul + 1;
	count = x;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return arg;
}

int main(int argc, char **argv)
{
	const struct timespec pause = { 0, 50000000 };
	const char *how = argc > 1 ? argv[1] : "";
	pthread_t thread;
	go = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	puts("begun");
	fflush(stdout);
	if (strcmp(how, "process") == 0) {
		if (fork() == 0) {
			waits(NULL);
			_exit(0);
		}
		nanosleep(&pause, NULL);
		*go = 1;
		wait(NULL);
	} else {
		pthread_create(&thread, NULL, strcmp(how, "thread") == 0 ? waits : computes, NULL);
		if (strcmp(how, "thread") == 0) {
			nanosleep(&pause, NULL);
			*go = 1;
		}
		pthread_join(thread, NULL);
	}
	puts("done");
	return 0;
}
