/* A server that reads slowly, or at once with an argument, or slowly by IPv6 with the argument six, in a child for each connection
 * with fork, in a child that accepts with worker, by two descriptors of it in turn with twice: on port 8080, of each connection a length, then so many bytes; it answers their digest. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char piece[16384];
static int slow, twice;

static int all(int fd, void *to, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t got = read(fd, (char *)to + at, n - at);
		if (got <= 0)
			return 0;
		at += (size_t)got;
	}
	return 1;
}

static void serve(int fd)
{
	const struct timespec pause = { 0, 4000000 };
	uint64_t n, sum = 0xcbf29ce484222325u;
	if (all(fd, &n, sizeof n)) {
		int first = fd;
		if (twice)
			fd = dup(first);
		for (int turn = 0; n; turn++) {
			if (turn == 64 && first != fd) { /* another connection may get its number */
				close(first);
				first = fd;
			}
			ssize_t got = read(turn % 2 ? first : fd, piece, n < sizeof piece ? n : sizeof piece);
			if (got <= 0)
				break;
			for (ssize_t i = 0; i < got; i++)
				sum = (sum ^ (unsigned char)piece[i]) * 0x100000001b3u;
			n -= (uint64_t)got;
			if (slow)
				nanosleep(&pause, NULL);
		}
		if (first != fd)
			close(first);
		if (!n && write(fd, &sum, sizeof sum) != sizeof sum)
			n = 1;
	}
	close(fd);
}

int main(int words, char **word)
{
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(8080) };
	struct sockaddr_in6 by_six = { .sin6_family = AF_INET6, .sin6_port = htons(8080) };
	const char how = words > 1 ? word[1][0] : 0;
	const int six = how == 's', forks = how == 'f', works = how == 'w';
	twice = how == 't';
	slow = !how || six || forks || works || twice;
	const struct sockaddr *own = six ? (struct sockaddr *)&by_six : (struct sockaddr *)&four;
	int one = 1, door = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
	setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(door, own, six ? sizeof by_six : sizeof four) < 0 || listen(door, 16) < 0)
		return 1;
	if (works && fork() != 0)
		return wait(NULL) < 0;
	for (;;) {
		int fd = accept(door, NULL, NULL);
		if (fd < 0)
			continue;
		if (forks && fork() != 0) {
			close(fd);
			while (waitpid(-1, NULL, WNOHANG) > 0)
				;
			continue;
		}
		serve(fd);
		if (forks)
			_exit(0);
	}
}
