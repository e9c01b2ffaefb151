/* Four threads execute the same few instructions as often and as close together as they can. */
#include <pthread.h>
#include <stdio.h>

static volatile unsigned long table[512];

__attribute__((noinline)) static unsigned long look(unsigned long at)
{
	return table[at & 511] ^ at;
}

static void *work(void *sum)
{
	for (unsigned long i = 0; i < 20000; i++)
		*(unsigned long *)sum += look(i);
	return NULL;
}

int main(void)
{
	enum { THREADS = 4 };
	pthread_t thread[THREADS];
	unsigned long sum[THREADS] = {0}, all = 0;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, work, &sum[i]);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL), all += sum[i];
	printf("%lu\n", all);
	return 0;
}
