/* Kept: two processes, each with something that the other one has otherwise. For each line that comes, what they find. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEEP (256 << 10)

static int waits(int fd)
{
	return !(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

static int hangs_up(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };
	return poll(&p, 1, 0) == 1 && p.revents & POLLHUP;
}

int main(void)
{
	volatile char deep[DEEP];
	(void)deep[0]; /* the stack reaches so far in both, and has no pages there */
	int pipes[2], pair[2], one[2], other[2], ask[2], answer[2];
	pipe2(pipes, 0);
	fcntl(pipes[1], F_SETFL, O_NONBLOCK);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	fcntl(pair[1], F_SETFL, O_NONBLOCK);
	socketpair(AF_UNIX, SOCK_STREAM, 0, one);
	socketpair(AF_UNIX, SOCK_STREAM, 0, other);
	close(one[1]);
	close(other[1]);
	pipe2(ask, 0);
	pipe2(answer, 0);
	char *common = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	*common = 7;
	const int set = epoll_create1(0);
	if (fork() == 0) {
		mprotect(common, 4096, PROT_NONE);
		const int own = eventfd(0, EFD_NONBLOCK); /* the number that its parent's has */
		dup2(2, 1);
		char line[80], byte;
		while (read(ask[0], &byte, 1) == 1 && byte != '.') {
			uint64_t count = 1;
			struct epoll_event event;
			write(own, &count, 8);
			const int found = epoll_wait(set, &event, 1, 0);
			read(own, &count, 8);
			mprotect(common, 4096, PROT_READ);
			const char stored = *common;
			mprotect(common, 4096, PROT_NONE);
			const int n = snprintf(line, sizeof line, "deep %d stored %d polled %d\n", deep[DEEP / 2], stored, found);
			write(1, "to standard error\n", 18);
			write(answer[1], line, (size_t)n);
		}
		_exit(0);
	}
	mprotect(common, 4096, PROT_NONE);
	const int own = eventfd(0, EFD_NONBLOCK);
	struct epoll_event event = { EPOLLIN, { .u64 = 1 } };
	epoll_ctl(set, EPOLL_CTL_ADD, own, &event);
	for (int i = 0; i < DEEP; i++)
		deep[i] = 'x';
	char line[80], all[160];
	while (fgets(line, sizeof line, stdin)) {
		write(ask[1], "?", 1);
		const ssize_t n = read(answer[0], line, sizeof line);
		line[n > 0 ? n : 0] = 0;
		snprintf(all, sizeof all, "waits %d%d%d%d hangs %d%d %s", waits(pipes[0]), waits(pipes[1]), waits(pair[0]), waits(pair[1]),
			 hangs_up(one[0]), hangs_up(other[0]), line);
		fputs(all, stdout);
		fflush(stdout);
	}
	write(ask[1], ".", 1);
	while (wait(0) > 0)
		;
	return deep[DEEP / 2] != 'x';
}
