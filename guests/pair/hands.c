/* Two processes that hand each other numbers by a pair of sockets and a counter, and a pipe by a message.
 * hands N: N rounds. hands N FILE: the file as well, by a message. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void give(int to, int fd)
{
	char byte = 'x', control[CMSG_SPACE(sizeof fd)] = { 0 };
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	if (sendmsg(to, &m, 0) != 1)
		exit(2);
}

static int take(int from)
{
	int fd;
	char byte, control[CMSG_SPACE(sizeof fd)];
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	if (recvmsg(from, &m, 0) != 1 || !CMSG_FIRSTHDR(&m))
		exit(3);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	return fd;
}

int main(int argc, char **argv)
{
	const int rounds = atoi(argv[1]);
	int pair[2], wakes = eventfd(0, EFD_CLOEXEC);
	uint64_t counted;
	unsigned n, sum = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (wakes < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return 1;
	if (fork() == 0) {
		close(pair[0]);
		const int back = take(pair[1]);
		if (argc > 2)
			close(take(pair[1]));
		while (read(pair[1], &n, sizeof n) == sizeof n) {
			n = n * 2654435761u + 1;
			if (write(back, &n, sizeof n) != sizeof n)
				return 4;
			counted = n % 7 + 1;
			if (write(wakes, &counted, sizeof counted) != sizeof counted)
				return 5;
		}
		return 0;
	}
	close(pair[1]);
	int two[2];
	if (pipe2(two, O_CLOEXEC))
		return 1;
	give(pair[0], two[1]);
	close(two[1]);
	if (argc > 2)
		give(pair[0], open(argv[2], O_RDONLY));
	for (int i = 0; i < rounds; i++) {
		if (send(pair[0], &sum, sizeof sum, 0) != sizeof sum || read(two[0], &n, sizeof n) != sizeof n ||
		    read(wakes, &counted, sizeof counted) != sizeof counted)
			return 6;
		sum = n ^ (unsigned)counted;
		if (i % 100 == 0)
			printf("%d\n", i);
	}
	shutdown(pair[0], SHUT_WR);
	int status;
	wait(&status);
	printf("%u %d\n", sum, status);
	return 0;
}
