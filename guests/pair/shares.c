/* Shares: three processes count in memory that they share, under a semaphore, and sum up in which order they came. How often each does
 * may be told; 0: until a line comes. */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct common { sem_t turn; int count, own[3], enough; unsigned long order; };

int main(int n_args, char **arg)
{
	const int turns = n_args > 1 ? atoi(arg[1]) : 700;
	struct common *c = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sem_init(&c->turn, 1, 1);
	for (int i = 0; i < 3; i++)
		if (fork() == 0) {
			const struct timespec pause = { 0, 2000000 };
			for (int n = 0; turns ? n < turns : !c->enough; n++) {
				sem_wait(&c->turn);
				c->count++;
				c->own[i]++;
				c->order = c->order * 31 + (unsigned long)i;
				sem_post(&c->turn);
				nanosleep(&pause, 0);
			}
			_exit(0);
		}
	if (!turns) {
		char byte;
		c->enough = read(0, &byte, 1) >= 0;
	}
	while (wait(0) > 0)
		;
	char name[64]; /* what the other site has otherwise, it claims otherwise */
	snprintf(name, sizeof name, "order-%lx", c->order);
	FILE *f = fopen("order", "w");
	fputs(name, f);
	fclose(f);
	if (turns)
		printf("%d turns\n", c->count);
	else
		puts(c->count == c->own[0] + c->own[1] + c->own[2] ? "all counted" : "some are lost");
	return 0;
}
