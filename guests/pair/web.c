/* A web server of one process, as small as can be: epoll, accept4, and sendfile with the fallback that sendfile(2) tells
 * programs to have. Serves the files of its directory on port 8080. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct client {
	int file, asked;
	off_t at, size;
} client[1024];

static void done(int fd)
{
	if (client[fd].file > 0)
		close(client[fd].file);
	memset(&client[fd], 0, sizeof client[fd]);
	close(fd);
}

static void answer(int fd)
{
	char line[2048], name[1024], head[256];
	struct stat st;
	ssize_t n = read(fd, line, sizeof line - 1);
	if (n <= 0) {
		if (n == 0 || errno != EAGAIN)
			done(fd);
		return;
	}
	line[n] = 0;
	if (sscanf(line, "GET /%1000s", name) != 1 || strchr(name, '/') || (client[fd].file = open(name, O_RDONLY)) < 0 ||
	    fstat(client[fd].file, &st) < 0) {
		done(fd);
		return;
	}
	client[fd].asked = 1;
	client[fd].size = st.st_size;
	n = snprintf(head, sizeof head, "HTTP/1.0 200 OK\r\nContent-Length: %lld\r\n\r\n", (long long)st.st_size);
	if (write(fd, head, (size_t)n) != n)
		done(fd);
}

static void go_on(int fd)
{
	static char piece[65536];
	struct client *c = &client[fd];
	while (c->at < c->size) {
		ssize_t n = sendfile(fd, c->file, &c->at, sizeof piece);
		if (n < 0 && (errno == EINVAL || errno == ENOSYS)) {
			n = pread(c->file, piece, sizeof piece, c->at);
			n = n > 0 ? send(fd, piece, (size_t)n, MSG_NOSIGNAL) : n;
			if (n > 0)
				c->at += n;
		}
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0)
			break;
	}
	done(fd);
}

int main(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(8080) };
	struct epoll_event e = { .events = EPOLLIN }, got[16];
	int one = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poll = epoll_create1(0);
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(s, (struct sockaddr *)&any, sizeof any) < 0 || listen(s, 16) < 0)
		return 1;
	e.data.fd = s;
	epoll_ctl(poll, EPOLL_CTL_ADD, s, &e);
	for (;;) {
		int n = epoll_wait(poll, got, 16, -1);
		for (int i = 0; i < n; i++) {
			int fd = got[i].data.fd;
			if (fd == s) {
				fd = accept4(s, NULL, NULL, SOCK_NONBLOCK);
				if (fd < 0)
					continue;
				e.events = EPOLLIN;
				e.data.fd = fd;
				epoll_ctl(poll, EPOLL_CTL_ADD, fd, &e);
			} else if (!client[fd].asked) {
				answer(fd);
				e.events = EPOLLOUT;
				e.data.fd = fd;
				if (client[fd].asked)
					epoll_ctl(poll, EPOLL_CTL_MOD, fd, &e);
			} else {
				go_on(fd);
			}
		}
	}
}
