/* The machine's clock jumps by MS milliseconds, and HOLD milliseconds later it goes on as if it had not.
 *
 *   jump MS HOLD    a line when it has jumped, one when it is right again; status 2: the kernel refuses
 *
 * What has passed meanwhile is read from CLOCK_MONOTONIC, which does not jump. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void add(struct timespec *t, long long ns)
{
	const long long all = (long long)t->tv_sec * 1000000000 + t->tv_nsec + ns;
	t->tv_sec = all / 1000000000;
	t->tv_nsec = all % 1000000000;
}

int main(int words, char **word)
{
	struct timespec real, began, now, to;
	sigset_t all;
	if (words < 3)
		return 1;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	mlockall(MCL_CURRENT);
	setvbuf(stdout, NULL, _IONBF, 0);
	clock_gettime(CLOCK_REALTIME, &real);
	clock_gettime(CLOCK_MONOTONIC, &began);
	to = real;
	add(&to, atoll(word[1]) * 1000000);
	if (clock_settime(CLOCK_REALTIME, &to) < 0)
		return 2;
	puts("jumped");
	usleep((useconds_t)atoi(word[2]) * 1000);
	clock_gettime(CLOCK_MONOTONIC, &now);
	to = real;
	add(&to, (now.tv_sec - began.tv_sec) * 1000000000ll + (now.tv_nsec - began.tv_nsec));
	clock_settime(CLOCK_REALTIME, &to);
	puts("back");
	return 0;
}
