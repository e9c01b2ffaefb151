/* A crew: threads that hand work to each other.
 *
 *   crew        a line of standard input at a time: "sum" digests x.db, four threads a page each in turn; "nap MS" sleeps in one
 *               thread while another waits for as long for a word that does not come; both say what they found
 *   crew serve  port 8080, by IPv6 and IPv4 alike: one thread accepts, one for each connection reads into a ring, one digests, slowly; the client says how many
 *               bytes will come, and is told their digest
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HANDS 4
#define PAGE 4096
#define RING 16384u

static uint64_t digest(uint64_t sum, const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum = (sum ^ p[i]) * 0x100000001b3u;
	return sum;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static off_t next_page, pages, left;
static int file;
static uint64_t sums[1 << 16];

static void *hand(void *arg)
{
	unsigned char bytes[PAGE];
	for (pthread_mutex_lock(&lock);;) {
		while (next_page == pages)
			pthread_cond_wait(&work, &lock);
		off_t own = next_page++;
		pthread_mutex_unlock(&lock);
		ssize_t n = pread(file, bytes, sizeof bytes, own * PAGE);
		uint64_t sum = digest(0xcbf29ce484222325u, bytes, n > 0 ? (size_t)n : 0);
		pthread_mutex_lock(&lock);
		sums[own] = sum;
		if (!--left)
			pthread_cond_signal(&done);
	}
	return arg;
}

static uint64_t sum_of_file(void)
{
	pthread_mutex_lock(&lock);
	file = open("x.db", O_RDONLY);
	left = pages = (lseek(file, 0, SEEK_END) + PAGE - 1) / PAGE;
	next_page = 0;
	pthread_cond_broadcast(&work);
	while (left)
		pthread_cond_wait(&done, &lock);
	next_page = pages = 0;
	pthread_mutex_unlock(&lock);
	close(file);
	return digest(0xcbf29ce484222325u, (unsigned char *)sums, sizeof sums);
}

static void *sleeps(void *ms)
{
	struct timespec t = { (intptr_t)ms / 1000, (intptr_t)ms % 1000 * 1000000 };
	nanosleep(&t, NULL);
	return NULL;
}

static int nap(long ms)
{
	static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
	pthread_t sleeper;
	struct timespec until;
	pthread_create(&sleeper, NULL, sleeps, (void *)(intptr_t)ms);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += ms % 1000 * 1000000;
	if (until.tv_nsec >= 1000000000)
		until.tv_sec++, until.tv_nsec -= 1000000000;
	pthread_mutex_lock(&own);
	int end = pthread_cond_timedwait(&never, &own, &until);
	pthread_mutex_unlock(&own);
	pthread_join(sleeper, NULL);
	return end;
}

static int console(void)
{
	char line[256];
	pthread_t crew;
	for (int i = 0; i < HANDS; i++)
		pthread_create(&crew, NULL, hand, NULL);
	setvbuf(stdin, NULL, _IONBF, 0);
	while (fgets(line, sizeof line, stdin)) {
		if (strncmp(line, "nap ", 4) == 0)
			printf("nap %d\n", nap(atol(line + 4)));
		else
			printf("%016llx\n", (unsigned long long)sum_of_file());
		fflush(stdout);
	}
	return 0;
}

struct line {
	int fd;
	uint64_t bytes, got, taken, sum;
	unsigned char ring[RING];
	pthread_mutex_t lock;
	pthread_cond_t more, room;
};

static void *digests(void *arg)
{
	const struct timespec pause = { 0, 4000000 };
	struct line *l = arg;
	pthread_mutex_lock(&l->lock);
	while (l->taken < l->bytes) {
		while (l->got == l->taken && l->got < l->bytes)
			pthread_cond_wait(&l->more, &l->lock);
		size_t from = l->taken % RING, n = l->got - l->taken;
		n = n < RING - from ? n : RING - from;
		pthread_mutex_unlock(&l->lock);
		l->sum = digest(l->sum, l->ring + from, n);
		nanosleep(&pause, NULL); /* what comes meanwhile waits in the kernel */
		pthread_mutex_lock(&l->lock);
		l->taken += n;
		pthread_cond_signal(&l->room);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

static void *reads(void *arg)
{
	struct line *l = arg;
	pthread_t other;
	if (recv(l->fd, &l->bytes, 8, MSG_WAITALL) != 8)
		l->bytes = 0;
	pthread_create(&other, NULL, digests, l);
	pthread_mutex_lock(&l->lock);
	while (l->got < l->bytes) {
		while (l->got - l->taken == RING)
			pthread_cond_wait(&l->room, &l->lock);
		size_t at = l->got % RING, n = RING - (l->got - l->taken);
		n = n < RING - at ? n : RING - at;
		pthread_mutex_unlock(&l->lock);
		ssize_t r = read(l->fd, l->ring + at, n);
		pthread_mutex_lock(&l->lock);
		if (r <= 0)
			l->bytes = l->got;
		else
			l->got += (uint64_t)r;
		pthread_cond_signal(&l->more);
	}
	pthread_mutex_unlock(&l->lock);
	pthread_join(other, NULL);
	if (write(l->fd, &l->sum, 8) != 8)
		perror("crew");
	close(l->fd);
	free(l);
	return NULL;
}

static int serve(void)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(8080) };
	int one = 1, s = socket(AF_INET6, SOCK_STREAM, 0);
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(s, (struct sockaddr *)&any, sizeof any) < 0 || listen(s, 16) < 0)
		return 1;
	for (;;) {
		struct line *l = calloc(1, sizeof *l);
		pthread_t other;
		pthread_mutex_init(&l->lock, NULL);
		pthread_cond_init(&l->more, NULL);
		pthread_cond_init(&l->room, NULL);
		l->sum = 0xcbf29ce484222325u;
		l->fd = accept(s, NULL, NULL);
		if (l->fd < 0 || pthread_create(&other, NULL, reads, l))
			return 1;
		pthread_detach(other);
	}
}

int main(int n, char **word)
{
	return n > 1 && strcmp(word[1], "serve") == 0 ? serve() : console();
}
