/* Threads and processes that all do the same sum; each prints its own.
 *
 * Processes, by order of creation: 0, its child 1, the child's child 2, and 0's second child 3. Threads
 * of process 0: main, main.1, main.1.1 and main.2; of process 3: main and main.1. One computes at a
 * time.
 */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) long sum(void)
{
	long total = 0;
	for (long i = 1; i <= 100; i++)
		__asm__ volatile("mov %1, %%rax\n\timul %1, %%rax\n\tadd %%rax, %0" : "+r"(total) : "r"(i) : "rax");
	return total;
}

static void say(const char *who)
{
	char line[64];
	int n = snprintf(line, sizeof line, "%s %ld\n", who, sum());
	if (write(1, line, n) != n)
		_exit(1);
}

static void *leaf(void *name)
{
	say(name);
	return 0;
}

static void with(void *(*work)(void *), char *name)
{
	pthread_t thread;
	if (pthread_create(&thread, 0, work, name) || pthread_join(thread, 0))
		_exit(1);
}

static void *branch(void *name)
{
	with(leaf, "0 main.1.1");
	say(name);
	return 0;
}

int main(void)
{
	say("0 main");
	with(branch, "0 main.1");
	with(leaf, "0 main.2");
	if (!fork()) {
		say("1 main");
		if (!fork()) {
			say("2 main");
			_exit(0);
		}
		wait(0);
		_exit(0);
	}
	wait(0);
	if (!fork()) {
		with(leaf, "3 main.1");
		say("3 main");
		_exit(0);
	}
	wait(0);
	say("0 main");
	return 0;
}
