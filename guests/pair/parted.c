/* Parted: a process and its child, each with memory of its own, and pipes between them; parted threads: a thread in the child's place.
 * For each line that comes, what both have made of their memory: every word of it depends on all that came before. "where": where
 * that of each is, and memory that nobody reads. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 4096 };

static uint64_t mine[WORDS], others[WORDS], unread[WORDS];
static int ask[2], answer[2];

static uint64_t mix(uint64_t sum, uint64_t word)
{
	sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
	return sum ^ sum >> 29;
}

static uint64_t turn(uint64_t *own, uint64_t n)
{
	for (int i = 0; i < WORDS; i++)
		n = mix(n, own[i]);
	own[n % WORDS] = n;
	return n;
}

static void *serve(void *arg)
{
	uint64_t n;
	while (read(ask[0], &n, sizeof n) == sizeof n && n) {
		n = turn(others, n);
		write(answer[1], &n, sizeof n);
	}
	return arg;
}

int main(int argc, char **argv)
{
	char line[80];
	uint64_t n = 0, other, none = 0;
	pthread_t thread;
	const int threads = argc > 1 && !strcmp(argv[1], "threads");
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (uint64_t i = 0; i < WORDS; i++)
		mine[i] = others[i] = unread[i] = mix(i, WORDS);
	if (pipe(ask) || pipe(answer))
		return 1;
	if (threads ? pthread_create(&thread, NULL, serve, NULL) : fork() == 0)
		return serve(NULL) != NULL;
	while (fgets(line, sizeof line, stdin)) {
		if (!strcmp(line, "where\n")) {
			printf("%lx %lx %lx\n", (long)mine, (long)others, (long)unread);
			continue;
		}
		const uint64_t sum = turn(mine, ++n);
		if (write(ask[1], &n, sizeof n) != sizeof n || read(answer[0], &other, sizeof other) != sizeof other)
			return 1;
		printf("%u %016lx %016lx\n", (unsigned)n, (long)sum, (long)other);
	}
	write(ask[1], &none, sizeof none);
	if (threads)
		pthread_join(thread, NULL);
	else
		wait(NULL);
	return 0;
}
