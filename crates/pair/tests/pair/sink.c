/* A server that reads slowly, or at once with an argument, or slowly by IPv6 with the argument six: on port 8080, of each connection a length, then so many bytes; it answers their digest. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char piece[16384];

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

int main(int words, char **word)
{
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(8080) };
	struct sockaddr_in6 by_six = { .sin6_family = AF_INET6, .sin6_port = htons(8080) };
	const int six = words > 1 && word[1][0] == 's', slow = words < 2 || six;
	const struct sockaddr *own = six ? (struct sockaddr *)&by_six : (struct sockaddr *)&four;
	const struct timespec pause = { 0, 4000000 };
	int one = 1, door = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
	setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(door, own, six ? sizeof by_six : sizeof four) < 0 || listen(door, 16) < 0)
		return 1;
	for (;;) {
		int fd = accept(door, NULL, NULL);
		uint64_t n, sum = 0xcbf29ce484222325u;
		if (fd < 0)
			continue;
		if (all(fd, &n, sizeof n)) {
			while (n) {
				ssize_t got = read(fd, piece, n < sizeof piece ? n : sizeof piece);
				if (got <= 0)
					break;
				for (ssize_t i = 0; i < got; i++)
					sum = (sum ^ (unsigned char)piece[i]) * 0x100000001b3u;
				n -= (uint64_t)got;
				if (slow)
					nanosleep(&pause, NULL);
			}
			if (!n && write(fd, &sum, sizeof sum) != sizeof sum)
				n = 1;
		}
		close(fd);
	}
}
